"""A share of the pool at its edges: nonsense, quotas, no share at all."""

from pool_world import PAGE, PoolWorld, world

from tercet.messages.events import MoveEnd
from tercet.messages.kv import PoolWant
from tercet.pool.config import PoolConfig, Quota

CHAIN = list(range(6))


def test_an_unknown_ask_has_nothing() -> None:
    pool = world()
    pool.tell("a", PoolWant(ask=77, count=3))
    pool.settle()
    assert pool.reader("a").ready[77] == {0: None, 1: None, 2: None}


def test_quotas_are_each_namespaces_own() -> None:
    pool = world(pages=16, quotas=(Quota(namespace="loud", dram_bytes=4 * PAGE),))
    pool.put("a", list(range(8)), namespace="quiet")
    pool.run(100)
    for number in range(50):
        pool.put("a", [number], namespace="loud")
        pool.settle()
    assert pool.tiers("a", list(range(8)), namespace="quiet") == "d" * 8
    assert [n for n in range(50) if pool.tiers("a", [n], namespace="loud")] == [46, 47, 48, 49]


def test_without_a_share_everything_is_a_miss_at_once() -> None:
    pool = PoolWorld(PoolConfig())
    for host in pool.hosts.values():
        host.machine.pooling._router.set_hosts({})
    assert pool.tiers("a", [1]) == ""
    put = pool.put("a", [1])
    pool.settle()
    assert pool.reader("a").stored[put] == 0


def test_a_value_that_waits_for_the_disk_twice_is_written_once() -> None:
    """Values that went before they were written left their wishes; others have their numbers."""
    pool = world(pages=8, disk=200)
    pool.next_end.extend([MoveEnd.DONE, MoveEnd.FULL])
    for number in range(40):
        pool.put("a", [number])
        pool.settle()
    assert not pool.hosts["a"].labels, "the disk is left alone for a while"
    pool.wait(31_000)
    pool.put("a", [40])  # all places are held while they are written: it is not stored
    pool.settle()
    pool.check()
    assert pool.tiers("a", list(range(32, 40))) == "d" * 8
    assert len(pool.hosts["a"].labels) == 8
