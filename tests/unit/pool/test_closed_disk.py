"""A disk that is given up: nothing on it is found from then on, and no event forgets all of it."""

from tercet.pool.config import PoolConfig
from tercet.pool.index import NONE
from tercet.pool.store import Store, Value, check_store

PAGE = 4096
COUNT = 400


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "little")


def stored(count: int) -> tuple[Store, list[int]]:
    """Values on disk, the last few of them in memory as well."""
    config = PoolConfig(dram_bytes=20 * PAGE, disk_path="x", disk_bytes=20 * count * PAGE)
    store, entries = Store(config), []
    disk = store.disk
    assert disk is not None
    for number in range(count):
        got = store.reserve("n", key_of(number), PAGE)
        assert got is not None
        value = Value(key=key_of(number), size=PAGE, part_bytes=PAGE, check=1)
        entry = store.commit(*got, value)
        copy = disk.reserve(entry, key_of(number))
        assert copy is not None
        disk.commit(entry, copy[0])
        entries.append(entry)
    check_store(store)
    return store, entries


def on_disk(store: Store, entries: list[int]) -> int:
    disk = store.disk
    assert disk is not None
    return sum(disk.tier.keeps(entry) for entry in entries)


def test_what_is_only_there_is_gone_at_once_and_forgotten_little_by_little() -> None:
    store, entries = stored(COUNT)
    store.close_disk()
    assert on_disk(store, entries) == COUNT, "closing it takes no time"
    assert "".join(store.tier_of(entry) for entry in entries) == "d" * 20
    left = COUNT
    while left:
        store.clear_disk(64)
        check_store(store)
        assert left - on_disk(store, entries) <= 64
        left = on_disk(store, entries)
    assert len(store.index) == 20
    store.clear_disk(64)
    assert len(store.index) == 20


def test_what_is_met_meanwhile_can_be_stored_anew() -> None:
    store, entries = stored(COUNT)
    store.close_disk()
    assert store.known("n", key_of(0)) == NONE
    assert not store.index.is_used(entries[0])
    got = store.reserve("n", key_of(0), PAGE)
    assert got is not None
    again = store.commit(*got, Value(key=key_of(0), size=PAGE, part_bytes=PAGE, check=2))
    assert store.tier_of(again) == "d"
    assert store.known("n", key_of(COUNT - 1)) == entries[-1], "it is in memory as well"
    for _ in range(COUNT // 64 + 1):
        store.clear_disk(64)
    assert store.tier_of(again) == "d"
    check_store(store)


def test_what_is_read_from_it_waits_for_its_reader() -> None:
    store, entries = stored(COUNT)
    disk = store.disk
    assert disk is not None
    disk.hold(entries[0])
    store.close_disk()
    assert store.known("n", key_of(0)) == entries[0]
    store.clear_disk(COUNT)
    assert on_disk(store, entries) == 1
    store.release_disk(entries[0])
    assert not store.index.is_used(entries[0])
    check_store(store)
