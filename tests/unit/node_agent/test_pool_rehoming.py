"""A host that joins is offered what is its own by now, from memory and from disks alike."""

from pool_world import PoolWorld, key_of, tag_of, world

from tercet.node_agent.pool_rehoming import BRING_MAX
from tercet.pool.index import NONE
from tercet.pool.placement import ranked

NUMBERS = list(range(80))


def home(pool: PoolWorld, number: int) -> str:
    return ranked(key_of(number), pool.hosts)[0]


def filled(**more: int) -> PoolWorld:
    """Two hosts, most of whose values lie on disk alone."""
    pool = world("a", "b", pages=10, disk=400, **more)
    for number in NUMBERS:
        pool.put("a", [number])
        pool.run(50)
    tiers = [pool.tiers("a", [number]) for number in NUMBERS]
    assert "" not in tiers
    assert sum(tier in "sS" for tier in tiers) >= 60
    return pool


def values(pool: PoolWorld, name: str) -> int:
    stats = pool.hosts[name].machine.pooling.stats()
    assert stats is not None
    return stats.values


def walks(pool: PoolWorld) -> bool:
    """Whether some host still looks for values whose home is another."""
    walkers = [host.machine.pooling._rehoming for host in pool.hosts.values()]
    return any(one is not None and one.is_busy for one in walkers)


def test_values_that_lie_on_disk_alone_move_to_the_host_that_joins() -> None:
    pool = filled()
    pool.start("c")
    pool.members()
    pool.run(8000)
    moved = [number for number in NUMBERS if home(pool, number) == "c"]
    assert len(moved) > 20
    assert values(pool, "c") == len(moved), "all of its share, and nothing else"
    assert sum(values(pool, name) for name in pool.hosts) == len(NUMBERS), "each is kept once"
    for number in NUMBERS:
        assert pool.read("b", [number]) == [tag_of("n", key_of(number))]
    pool.check()


def test_what_lies_in_memory_goes_first_and_disks_are_read_a_few_values_at_a_time() -> None:
    pool = filled()
    pool.start("c")
    first = {name: leaving(pool, name) for name in "ab"}
    assert all(first.values()), "none lay in memory: the test shows nothing"
    pool.members()
    loads = dict.fromkeys("ab", 0)
    for _ in range(400):
        for name in "ab":
            now = [m for m in pool.hosts[name].moves if "/disk/" in m.source.memory]
            assert len(now) <= BRING_MAX
            if now and not loads[name]:
                assert not [n for n in leaving(pool, name) if n in first[name]]
            loads[name] += len(now)
        pool.settle()
        pool.wait(50)
    assert min(loads.values()) > 0
    assert max(loads.values()) > BRING_MAX


def leaving(pool: PoolWorld, name: str) -> list[int]:
    """Values in a host's memory whose home is the one that joins."""
    shard = pool.hosts[name].machine.pooling._shard
    assert shard is not None
    entries = {n: shard.store.find("n", key_of(n)) for n in NUMBERS if home(pool, n) == "c"}
    return [n for n, entry in entries.items() if entry != NONE and shard.store.dram.has(entry)]


def test_a_value_that_cannot_be_brought_stays_and_is_tried_no_more() -> None:
    pool = filled()
    pool.start("c")
    before = sum(values(pool, name) for name in "ab")
    for place in pool.bytes:
        if "/disk/" in place[0]:
            pool.bytes[place] = -7  # all of it has rotted
    pool.members()
    pool.run(8000)
    assert values(pool, "c") < 20
    assert pool.names("pool.corrupt") > 0, "the new home gets nothing that is wrong"
    assert sum(values(pool, name) for name in pool.hosts) < before
    assert not walks(pool)
    pool.check()


def test_a_disk_that_fails_meanwhile_ends_it() -> None:
    pool = filled()
    pool.start("c")
    pool.members()
    pool.run(100)
    for place in [place for place in pool.bytes if "/disk/" in place[0]]:
        del pool.bytes[place]
    pool.run(10_000)
    assert pool.names("pool.disk_off") >= 1
    assert not walks(pool)
    pool.check()


def test_the_host_that_joins_may_go_again_at_any_moment() -> None:
    pool = filled()
    for ms in (100, 350, 700, 1500):
        pool.start("c")
        pool.members()
        pool.run(ms)
        pool.kill("c")
        pool.members()
        pool.run(2000)
        pool.check()
    stats = [pool.hosts[name].machine.pooling.stats() for name in "ab"]
    assert all(one is not None and not one.dram.held and not one.dram.reserved for one in stats)
    left = [number for number in NUMBERS if pool.tiers("a", [number])]
    for number in left:
        assert pool.read("b", [number]) == [tag_of("n", key_of(number))]
