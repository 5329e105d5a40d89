"""A share's disk that is busy, slow, or hangs: what waits is told in time, and nothing is lost for
good but to a disk that does not answer at all.
"""

from pool_world import PoolWorld, is_of_disk, key_of, tag_of, world

from tercet.messages.effects import Move
from tercet.messages.events import Moved, MoveEnd
from tercet.node_agent.pool_disk import LOADS_MAX, TROUBLES_MAX, WRITES_MAX
from tercet.pool.tiers import TierStats

COLD = list(range(40))
HOT = list(range(100, 160))


def cold(*, pages: int = 64) -> PoolWorld:
    """Values on disk alone, behind others that fill the memory."""
    pool = world(pages=pages, disk=4000)
    for number in [*COLD, *range(1000, 1000 + pages)]:
        pool.put("a", [number])
        pool.settle()
    assert pool.tiers("a", COLD) == "s" * len(COLD)
    return pool


def dram(pool: PoolWorld) -> TierStats:
    stats = pool.hosts["a"].machine.pooling.stats()
    assert stats is not None
    return stats.dram


def loads(pool: PoolWorld) -> list[Move]:
    host = pool.hosts["a"]
    return [one for one in (*host.moves, *host.stuck) if "/disk/" in one.source.memory]


def wanted(pool: PoolWorld, numbers: list[int]) -> int:
    ask = pool.find("a", numbers)
    while pool.deliver():
        pass
    pool.want("a", ask, len(numbers))
    return ask


def end(pool: PoolWorld, how: MoveEnd, *, wire: str = "disk") -> None:
    """The oldest move of the disk ends."""
    host = pool.hosts["a"]
    move = next(one for one in host.moves if is_of_disk(one))
    host.moves.remove(move)
    pool.on(host, Moved(ticket=move.ticket, end=how, wire=wire))


def serve(pool: PoolWorld, *, ms: int) -> None:
    """The disk ends one move each so many milliseconds, and says nothing of those that waited for
    longer than they may, as a mover does.
    """
    host = pool.hosts["a"]
    while loads(pool):
        pool.wait(ms)
        while host.moves and host.moves[0].deadline <= pool.now:
            end(pool, MoveEnd.LATE, wire="")
        pool.move(host)


def test_a_busy_disk_makes_values_wait_and_loses_none() -> None:
    """More is wanted at once than it brings in time: the rest cannot be had now and stays there."""
    pool = cold(pages=120)
    ask = wanted(pool, COLD)
    assert len(loads(pool)) == LOADS_MAX
    serve(pool, ms=100)
    pool.settle()
    got = pool.reader("a").ready[ask]
    assert sorted(got) == COLD, "all are answered"
    here = [number for number in COLD if got[number] is not None]
    assert 15 <= len(here) < 30, "what two seconds are enough for"
    assert pool.names("pool.disk_trouble") == 0
    pool.done("a", ask)
    assert len(pool.tiers("a", COLD)) == len(COLD)
    assert pool.read("a", COLD[-5:]) == [tag_of("n", key_of(number)) for number in COLD[-5:]]


def test_what_is_wanted_again_and_again_is_brought_once_all_the_same() -> None:
    pool = cold()
    asks = [wanted(pool, COLD[:20]) for _ in range(3)]
    assert len(loads(pool)) == LOADS_MAX
    pool.settle()
    for ask in asks:
        got = pool.reader("a").ready[ask]
        assert [number for number, value in got.items() if value is None] == []
    pool.check()


def test_moves_that_were_late_behind_others_are_no_trouble() -> None:
    pool = cold()
    for first in (0, 8, 16):
        wanted(pool, COLD[first : first + LOADS_MAX])
        pool.wait(1000)
        end(pool, MoveEnd.DONE)
        pool.wait(1000)
        for _ in range(LOADS_MAX - 1):
            end(pool, MoveEnd.LATE)
    assert pool.names("pool.disk_trouble") == 0
    assert pool.tiers("a", COLD) == ("d" + "s" * 7) * 3 + "s" * 16


def test_a_disk_that_hangs_leaves_memory_alone() -> None:
    """No error, no end: what is under way has its places, nothing else goes."""
    pool = cold()
    pool.disks_hang = True
    held = dram(pool).values
    for number in COLD:
        wanted(pool, [number])
        pool.run(500)
        pool.check()
    assert dram(pool).reserved <= LOADS_MAX
    assert dram(pool).values >= held - LOADS_MAX
    ready = pool.reader("a").ready.values()
    assert sum(len(got) for got in ready) == len(COLD), "all were answered"
    assert not any(value for got in ready for value in got.values())


def test_who_waits_for_a_disk_that_hangs_is_told_in_time() -> None:
    pool = cold()
    pool.disks_hang = True
    ask = wanted(pool, COLD)
    pool.run(2100)
    assert pool.reader("a").ready[ask] == dict.fromkeys(COLD)
    pool.check()


def test_a_disk_that_hangs_once_is_tried_again_and_goes_on() -> None:
    pool = cold()
    pool.disks_hang = True
    ask = wanted(pool, COLD)
    pool.run(7000)
    assert pool.names("pool.disk_trouble") == 1, "one, however many moves hang"
    pool.done("a", ask)
    before = len(loads(pool))
    assert pool.read("a", COLD) == [None] * len(COLD), "at once: it is left alone"
    assert len(loads(pool)) == before
    pool.let_go()
    pool.wait(30_000)
    pool.settle()
    assert pool.read("a", COLD) == [tag_of("n", key_of(number)) for number in COLD]
    assert pool.names("pool.disk_off") == 0
    pool.check()


def test_a_disk_that_hangs_for_good_is_given_up() -> None:
    pool = cold()
    pool.disks_hang = True
    for number in COLD:
        wanted(pool, [number])
        pool.run(3000)
        if not pool.tiers("a", COLD):
            break
    assert pool.names("pool.disk_off") == 1
    assert pool.names("pool.disk_trouble") == TROUBLES_MAX
    put = pool.put("a", COLD[-5:])
    pool.settle()
    assert pool.reader("a").stored[put] == 5, "memory goes on"
    pool.let_go()
    pool.run(15_000)
    assert not dram(pool).reserved
    assert not dram(pool).held
    pool.check()


def test_writes_that_hang_are_a_trouble_too() -> None:
    pool = world(pages=64, disk=4000)
    pool.disks_hang = True
    for number in HOT:
        pool.put("a", [number])
        pool.run(1000)
    assert len(pool.hosts["a"].stuck) == WRITES_MAX
    assert pool.names("pool.disk_trouble") == 1
    pool.let_go()
    pool.wait(30_000)
    pool.put("a", [1])
    pool.settle()
    assert len(pool.hosts["a"].labels) == len(HOT) + 1
    assert pool.names("pool.disk_off") == 0


def test_a_process_that_slept_does_not_blame_the_disk() -> None:
    pool = cold()
    ask = wanted(pool, COLD[:3])
    pool.wait(60_000)
    pool.settle()
    assert pool.names("pool.disk_trouble") == 0
    pool.done("a", ask)
    assert pool.tiers("a", COLD) == "d" * 3 + "s" * (len(COLD) - 3)


def test_a_queued_value_that_is_dropped_meanwhile_is_not_there() -> None:
    pool = cold()
    ask = wanted(pool, COLD)
    shard = pool.hosts["a"].machine.pooling._shard
    assert shard is not None
    last = shard.store.find("n", key_of(COLD[-1]))
    shard.store.drop(last)
    pool.settle()
    got = pool.reader("a").ready[ask]
    assert got[COLD[-1]] is None
    assert all(got[number] is not None for number in COLD[:-1])
    pool.done("a", ask)
    pool.check()


def test_one_read_that_hangs_holds_up_nobody() -> None:
    pool = cold()
    pool.disks_hang = True
    wanted(pool, COLD[:1])
    pool.disks_hang = False
    for number in COLD[1:20]:
        ask = wanted(pool, [number])
        pool.run(1000)
        assert pool.reader("a").ready[ask][0] is not None
    assert len(pool.hosts["a"].stuck) == 1
    assert pool.names("pool.disk_trouble") == 0
    pool.check()
