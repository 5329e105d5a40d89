"""A share of the pool at its edges: puts that go wrong, nonsense, quotas, no share at all."""

import pytest
from msgspec import structs
from pool_world import ONE, PAGE, PoolWorld, key_of, world

from tercet.base.ids import Address, Epoch
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd, Received
from tercet.messages.kv import PoolFound, PoolPut, PoolReady, PoolValue, PoolWant, Strip
from tercet.pool.config import PoolConfig, Quota
from tercet.pool.placement import ranked

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


@pytest.mark.parametrize(
    "odd",
    [
        {"units": ONE + b"x"},
        {"units": b""},
        {"memory": "a/disk/0", "start": 1},
        {"length": PAGE - 1},
        {"length": 0},
        {"length": -PAGE},
        {"length": 1 << 40},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_what_it_says_is_not_fetched(odd: dict[str, object]) -> None:
    pool = world(disk=64)
    source = structs.replace(Strip("a/kv/0", 0, PAGE, PAGE, ONE), **odd)
    for keys in (key_of(1), key_of(1)[:15]):
        put = PoolPut(
            put=len(keys),
            namespace="n",
            keys=keys,
            values=(PoolValue(source=source, check=1),),
            part_bytes=PAGE // 2,
            reply=Address("executor/a"),
        )
        pool.tell("a", put)
    assert not pool.hosts["a"].moves
    pool.settle()
    assert pool.reader("a").stored == {16: 0, 15: 0}


def heard(pool: PoolWorld, sender: str, message: object) -> None:
    """What agent a hears of another agent."""
    pool.on(pool.hosts["a"], Received(sender=Address(sender), epoch=Epoch(1), message=message))


def test_an_agent_that_wants_more_than_there_can_be_is_told_of_some() -> None:
    pool = world("a", "b")
    heard(pool, "agent/b", PoolWant(ask=1, count=1 << 40))
    _, to, ready = pool.mail.pop()
    assert (to, len(ready.values)) == ("agent/b", 1 << 16)
    heard(pool, "agent/b", PoolWant(ask=1, count=-1))
    assert not pool.mail


def test_odd_answers_of_another_agent_are_misses() -> None:
    pool = world("a", "b")
    numbers = [n for n in range(60) if ranked(key_of(n), ["a", "b"])[0] == "b"][:4]
    ask = pool.find("a", numbers)
    (number,) = (mail[2].ask for mail in pool.mail)
    pool.mail.clear()
    heard(pool, "agent/b", PoolFound(ask=number, tiers="dßd"))
    pool.deliver()
    assert pool.reader("a").found[ask].tiers == "D"
    pool.want("a", ask, 1)
    pool.mail.clear()
    value = PoolValue(source=Strip("b/dram/0", 0, PAGE, PAGE, ONE), check=1)
    for first in (-100, -4, 7, 1 << 40):
        heard(pool, "agent/b", PoolReady(ask=number, first=first, values=(value,), lease_ns=1))
    assert not pool.mail, "nothing of it was asked for"
    pool.check()


def test_what_is_given_up_while_it_is_written_is_not_found_on_the_disk() -> None:
    """Its readers hold the place in memory still; a copy that is loaded would lie there twice."""
    pool = world("a", disk=256)
    host = pool.hosts["a"]
    pool.put("a", [1])
    _talk(pool)
    pool.move(host)  # it came to memory; now it is written
    _talk(pool)
    asks = [_held(pool), _held(pool)]
    pool.done("a", asks[0], broken=(0,))
    _talk(pool)
    pool.move(host)
    found = pool.find("a", [1])
    _talk(pool)
    assert pool.reader("a").found[found].tiers == ""
    pool.done("a", asks[1])
    pool.settle()
    pool.check()


def _talk(pool: PoolWorld) -> None:
    while pool.deliver():
        pass


def _held(pool: PoolWorld) -> int:
    ask = pool.find("a", [1])
    _talk(pool)
    pool.want("a", ask, 1)
    _talk(pool)
    return ask
