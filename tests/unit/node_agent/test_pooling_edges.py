"""A share of the pool at its edges: puts that go wrong, nonsense, quotas, no share at all."""

from pool_world import PAGE, PoolWorld, key_of, world

from tercet.base.ids import Address
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import PoolPut, PoolWant
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


# puts


def test_a_value_that_is_stored_already_is_not_fetched_again() -> None:
    pool = world()
    pool.put("a", CHAIN)
    pool.run(100)
    put = pool.put("a", CHAIN)
    assert not pool.hosts["a"].moves
    pool.settle()
    assert pool.reader("a").stored[put] == 6


def test_a_value_that_comes_wrong_is_never_found() -> None:
    pool = world()
    put = pool.put("a", [1])
    pool.bytes["a/kv/0", 1 << 24] = 5  # the arena's block began another life
    pool.settle()
    assert pool.reader("a").stored[put] == 0
    assert pool.tiers("a", [1]) == ""


def test_a_source_that_hangs_is_given_up_in_time() -> None:
    pool = world(moves_max=2)
    put = pool.put("a", CHAIN)
    moves = [move for move in pool.hosts["a"].moves if isinstance(move, Move)]
    assert len(moves) == 2, "the others wait"
    pool.wait(6000)
    pool.next_end.extend([MoveEnd.LATE, MoveEnd.LATE])
    pool.settle()
    assert pool.reader("a").stored[put] == 0
    assert pool.names("pool.not_stored") == 6
    pool.check()


def test_a_put_said_twice_is_answered_once() -> None:
    pool = world()
    put = pool.put("a", [1])
    pool.settle()
    assert pool.reader("a").stored == {put: 1}


def test_nonsense_is_a_put_that_stores_nothing() -> None:
    pool = world()
    put = PoolPut(
        put=5, namespace="n", keys=key_of(1), values=(), part_bytes=0, reply=Address("executor/a")
    )
    pool.tell("a", put)
    pool.settle()
    assert pool.reader("a").stored == {5: 0}
