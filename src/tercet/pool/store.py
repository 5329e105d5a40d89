"""One host's share of the pool: which values it has, in memory, on disk, or in both.

    absent ──commit──▶ memory ──disk.commit──▶ memory and disk ──evicted──▶ disk
       ▲                  │ evicted                   ▲                      │
       └──────────────────┘                           └───────install────────┘

A value's entry lives as long as one of the tiers keeps its bytes. Every change of place has two
ends, `reserve` and `commit` or `cancel`; between them somebody else copies bytes.
"""

from msgspec import Struct

from tercet.base.errors import must
from tercet.pool.config import PoolConfig
from tercet.pool.disk_tier import DiskTier
from tercet.pool.index import NONE, Index
from tercet.pool.labels import Label
from tercet.pool.namespaces import Namespaces, digest_of
from tercet.pool.tiers import Tier, TierStats


class Value(Struct, frozen=True, kw_only=True):
    """What is to be stored: everything but its bytes."""

    key: bytes
    size: int
    part_bytes: int
    check: int


class StoreStats(Struct, frozen=True, kw_only=True):
    """What a share holds."""

    values: int
    index_bytes: int
    dram: TierStats
    disk: TierStats | None


class Store:
    """The index and both tiers; O(1) a call and no I/O."""

    def __init__(self, config: PoolConfig) -> None:
        self.index = Index()
        self.spaces = Namespaces(config.quotas)
        self.dram = Tier(
            self.index,
            config.segments,
            policy=config.policy,
            watermark=config.watermark,
            left=self.settle,
        )
        quotas = self.spaces.quotas
        self.dram.set_quotas({number: quota.dram_bytes for number, quota in quotas.items()})
        self.disk: DiskTier | None = None
        if config.disk_bytes:
            self.disk = DiskTier(config, self.index, self.spaces, self.settle)
        self._is_disk_open = self.disk is not None
        self._to_clear = 0
        """Entries below it may have copies on a closed disk."""

    # finding

    def find(self, namespace: str, key: bytes) -> int:
        """Give the entry of a value that can be had, or NONE."""
        entry = self.known(namespace, key)
        return entry if entry == NONE or self.tier_of(entry) else NONE

    def known(self, namespace: str, key: bytes) -> int:
        """Give the entry of a key even if its value is doomed, or NONE."""
        space = self.spaces.known(digest_of(namespace))
        if space is None:
            return NONE
        entry = self.index.find(*self.spaces.words(space, key))
        if entry != NONE and self._to_clear:
            self._clear(entry)
            return entry if self.index.is_used(entry) else NONE
        return entry

    def tier_of(self, entry: int) -> str:
        """Give where a value can be read: `d` memory, `s` disk, or nothing."""
        if self.dram.has(entry):
            return "d"
        disk = self.disk if self._is_disk_open else None
        return "s" if disk is not None and disk.tier.has(entry) else ""

    def key_of(self, entry: int) -> bytes:
        index = self.index
        return self.spaces.key(index.space[entry], index.word_a[entry], index.word_b[entry])

    def use(self, entry: int) -> None:
        """Note that a value was asked for, wherever it lies."""
        part = self.part_of(entry)
        self.dram.use(entry, part)
        if self.disk is not None:
            self.disk.tier.use(entry, part)

    def part_of(self, entry: int) -> int:
        return self.spaces.part(self.index.space[entry])

    # a new value

    def reserve(self, namespace: str, key: bytes, size: int) -> tuple[int, int] | None:
        """Give (place, number of the namespace) for a value that is coming; None: no room."""
        space = self.spaces.number(digest_of(namespace))
        if space is None:
            return None
        self.spaces.enter(space)
        self.spaces.names[space] = namespace
        word = self.spaces.words(space, key)[1]
        place = self.dram.reserve(size, self.spaces.part(space), word)
        if place is None:
            self.spaces.leave(space)
            return None
        return place, space

    def cancel(self, place: int, space: int, size: int) -> None:
        """It did not come."""
        self.dram.cancel(place, size, self.spaces.part(space))
        self.spaces.leave(space)

    def commit(self, place: int, space: int, value: Value) -> int:
        """It is there and can be found; gives its entry. Nobody else stored it meanwhile."""
        words = self.spaces.words(space, value.key)
        must(self.index.find(*words) == NONE, "a value is stored twice")
        entry = self._enter(words, space, value)
        self.dram.commit(entry, place, self.spaces.part(space))
        return entry

    def _enter(self, words: tuple[int, int], space: int, value: Value) -> int:
        index = self.index
        entry = index.add(*words)
        index.space[entry] = space
        index.size[entry] = value.size
        index.part[entry] = value.part_bytes
        index.check_of[entry] = value.check
        return entry

    # from the disk to memory

    def reserve_for(self, entry: int) -> int | None:
        """Give a place in memory for a value on disk; None: no room."""
        word = self.index.word_b[entry]
        return self.dram.reserve(self.index.size[entry], self.part_of(entry), word)

    def install(self, entry: int, place: int) -> None:
        """The value of a disk has come to memory."""
        self.dram.commit(entry, place, self.part_of(entry))

    def cancel_for(self, entry: int, place: int) -> None:
        """It has not."""
        self.dram.cancel(place, self.index.size[entry], self.part_of(entry))

    # holding and dropping

    def hold(self, entry: int) -> None:
        """Keep its copy in memory where it is."""
        self.dram.hold(entry, self.part_of(entry))

    def release(self, entry: int) -> None:
        if self.dram.release(entry, self.part_of(entry)):
            self.settle(entry)

    def release_disk(self, entry: int) -> None:
        if self.disk is not None and self.disk.release(entry):
            self.settle(entry)

    def drop(self, entry: int) -> None:
        """Its bytes are not what they should be (or are at home elsewhere): find it no more."""
        if self.disk is not None:
            self.disk.drop(entry)
        if self.dram.has(entry):
            self.dram.drop(entry, self.part_of(entry))
        self.settle(entry)

    def close_disk(self) -> None:
        """The disk is of no use any more: what lies only there is found by nobody, and forgotten
        when it is met, or by `clear_disk`.
        """
        self._is_disk_open = False
        self._to_clear = self.index.bound

    def clear_disk(self, count: int) -> None:
        """Forget what lies on a closed disk, so many entries at a time: there may be millions."""
        end = max(0, self._to_clear - count)
        for entry in range(end, self._to_clear):
            if self.index.is_used(entry):
                self._clear(entry)
        self._to_clear = end

    def _clear(self, entry: int) -> None:
        if self.disk is not None:
            self.disk.drop(entry)
            self.settle(entry)

    def offer(self, label: Label) -> bool:
        """Take up a value that was found on disk; False if it cannot be one of ours."""
        disk = self.disk
        if disk is None or not disk.is_sound(label):
            return False
        older = disk.older_at(label)
        if older != NONE and not self.dram.keeps(older):
            self.drop(older)
        space = self.spaces.number(label.namespace)
        if space is None:
            return False
        self.spaces.enter(space)
        words = self.spaces.words(space, label.key)
        if self.index.find(*words) == NONE:
            value = Value(
                key=label.key, size=label.size, part_bytes=label.part_bytes, check=label.check
            )
            entry = self._enter(words, space, value)
            if disk.adopt(entry, label):
                return True
            self.index.forget(entry)
        self.spaces.leave(space)
        return False

    def settle(self, entry: int) -> None:
        """Forget an entry whose bytes lie nowhere any more."""
        if self.dram.keeps(entry) or (self.disk is not None and self.disk.tier.keeps(entry)):
            return
        space = self.index.space[entry]
        self.index.forget(entry)
        self.spaces.leave(space)


def stats_of(store: Store) -> StoreStats:
    """Give what a share holds; O(spans)."""
    return StoreStats(
        values=len(store.index),
        index_bytes=store.index.num_bytes,
        dram=store.dram.stats(),
        disk=None if store.disk is None else store.disk.tier.stats(),
    )


def check_store(store: Store) -> None:
    """Raise unless index, tiers and namespaces agree; O(values)."""
    store.index.check()
    store.dram.check()
    disk = None if store.disk is None else store.disk.tier
    if disk is not None:
        disk.check()
    values = dict.fromkeys(store.spaces.values(), 0)
    for entry in store.index:
        must(
            store.dram.keeps(entry) or (disk is not None and disk.keeps(entry)),
            f"entry {entry} lies nowhere",
        )
        values[store.index.space[entry]] += 1
    for space, count in store.spaces.values().items():
        must(values[space] <= count, f"namespace {space} has {values[space]} values")
