"""What went wrong in the field when prefill and decode are apart, told to two machines."""

import pytest
from executor_harness import task
from peer_world import World

from tercet.messages.events import MoveEnd, Received
from tercet.messages.kv import BlocksReady, LeasesStand, ReturnBlocks
from tercet.messages.wire import Role

P, D = "executor/1", "executor/2"
PROMPT = [1, 2] * 40
WAYS = ["reference", "layer", "request"]


def world(way: str = "request", **options) -> World:
    return World({1: Role.PREFILL, 2: Role.DECODE}, way=way, **options)


def begin(way: str = "request", **options) -> World:
    house = world(way, **options)
    house.submit(task(1, PROMPT, new=12), D, prefill=P)
    return house


@pytest.mark.parametrize("way", WAYS)
def test_a_prefill_that_never_reports_is_not_waited_for(way: str) -> None:
    """vllm#46283: blocks of the decode side are never reclaimed; vllm#50719: requests wait for
    remote blocks for ever.
    """
    house = begin(way)
    house.queue.clear()  # the ask is lost, and nothing will ever answer it
    house.pass_time(10 * 10**9)
    house.quiet()
    house.verify(1)
    assert house.facts_of("kv.failed")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", range(6))
def test_a_client_that_leaves_strands_nothing_on_either_side(way: str, steps: int) -> None:
    """vllm PR#41269: prefill's blocks are stranded after decode rejects; dynamo PR#14775: prefill
    goes on after the client left.
    """
    house = begin(way)
    for _ in range(steps):
        if house.queue:
            house.deliver()
        elif house.peers[P].plans:
            house.step(P)
    house.cancel(1)
    house.settle()
    house.pass_time(10**9)
    house.settle()
    lender = house.peers[P].machine
    assert lender.partners.lender.num_lendings == 0, "told, not expired"
    assert not lender.scheduler.runs, "prefill goes on for nobody"
    house.quiet()


@pytest.mark.parametrize("end", [end for end in MoveEnd if end is not MoveEnd.DONE])
@pytest.mark.parametrize("way", ["layer", "request"])
def test_a_transfer_that_fails_makes_the_answer_late(way: str, end: MoveEnd) -> None:
    """sglang#9266, #23272, #11648, #12688: transfers fail under load, or after idle hours."""
    house = begin(way)
    while not house.peers[D].moves:
        house.deliver() if house.queue else house.step(P)
    while not house.can_move(house.peers[D].moves[0]):
        house.step(P)
    house.move(D, end=end)
    house.quiet()
    house.verify(1)
    house.pass_time(4 * 3600 * 10**9)
    house.submit(task(2, PROMPT + [3] * 40, new=5), D, prefill=P)
    house.quiet()
    house.verify(2)


@pytest.mark.parametrize("way", WAYS)
def test_broken_connections_leave_no_block_held(way: str) -> None:
    """vllm-ascend#12383: 99 % of the KV memory is held for ever after errors of the transport."""
    house = world(way)
    for number in range(1, 9):
        house.submit(task(number, [number] * 70, new=6), D, prefill=P)
        for _ in range(number):
            if house.queue:
                house.deliver()
            elif house.peers[P].plans:
                house.step(P)
        house.cut(P, D)
        house.link(P, D)
    house.quiet()
    for number in range(1, 9):
        house.verify(number)


def test_words_about_unknown_asks_hold_nothing() -> None:
    """dynamo#5095: "request not in mapping", and from then on the count of blocks only grows."""
    house = begin("request")
    ready = BlocksReady(ask=99, memory="local/kv/1", first=0, units=b"", lives=b"")
    house.on(D, Received(sender=P, epoch=1, message=ready))
    house.on(P, Received(sender=D, epoch=1, message=ReturnBlocks(asks=(98, 97))))
    house.on(D, Received(sender=P, epoch=1, message=LeasesStand(asks=(96,))))
    house.quiet()
    house.verify(1)


@pytest.mark.parametrize("seconds", [3, 7, 15])
def test_what_a_slow_prefill_lends_is_read_in_place(seconds: int) -> None:
    """The asker renews while it waits; that counts from the last word, not from the first."""
    house = begin("reference")
    house.deliver()
    for _ in range(2 * seconds):
        while house.queue:
            house.deliver()
        house.pass_time(10**9 // 2)
    house.settle()
    house.pass_time(3 * 10**9)
    house.quiet()
    house.verify(1)
    assert not house.facts_of("kv.failed")
    assert [dict(fact.labels)["way"] for fact in house.facts_of("kv.handover")] == ["reference"]


def test_a_task_without_room_waits_and_is_taken_up_again() -> None:
    """sglang#6857: a request that found no memory at decode is put back and never popped."""
    house = World({1: Role.PREFILL, 2: Role.DECODE}, way="request", num_blocks={1: 40, 2: 12})
    for number in range(1, 6):
        house.submit(task(number, [number] * 100, new=30), D, prefill=P)
    house.quiet()
    for number in range(1, 6):
        house.verify(number)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", range(8))
def test_a_lender_that_dies_at_any_moment_changes_no_token(way: str, steps: int) -> None:
    """aws-do-eks#84: expired blocks were read and the answer was 200 OK; dynamo#13691."""
    house = begin(way)
    for _ in range(steps):
        if house.queue:
            house.deliver()
        elif house.peers[P].plans:
            house.step(P)
        elif house.peers[D].plans:
            house.step(D)
    house.kill(P)
    house.quiet()
    house.verify(1)


@pytest.mark.parametrize("way", WAYS)
def test_messages_said_twice_are_heard_once(way: str) -> None:
    house = begin(way)
    for _ in range(200):
        if house.queue:
            house.deliver(keep=True)
            house.deliver()
        elif house.peers[P].plans:
            house.step(P)
        elif house.peers[D].moves and house.can_move(house.peers[D].moves[0]):
            house.move(D)
        elif house.peers[D].plans:
            house.step(D)
    house.quiet()
    house.verify(1)
