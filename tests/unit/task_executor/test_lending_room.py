"""Room and leases when executors lend to each other: nobody waits for ever, nothing leaks."""

import pytest
from executor_harness import task
from peer_world import World

from tercet.messages.events import PeerJoined, Received
from tercet.messages.kv import AskBlocks, LeasesStand, RenewLeases
from tercet.messages.wire import Role

P, D = "executor/1", "executor/2"
PROMPT = [1, 2] * 40


def world(way: str = "auto", **options) -> World:
    return World({1: Role.PREFILL, 2: Role.DECODE}, way=way, **options)


def run_until(house: World, holds, rounds=400) -> None:
    """Let things happen in their order until the condition holds."""
    for _ in range(rounds):
        if holds():
            return
        if house.queue:
            house.deliver()
            continue
        for address, peer in house.peers.items():
            if peer.plans:
                house.step(address)
                break
            if peer.moves and house.can_move(peer.moves[0]):
                house.move(address)
                break
    raise AssertionError("it never came to that")


def lender_of(house: World):
    return house.peers[P].machine.partners.lender


def asker_of(house: World):
    return house.peers[D].machine.partners.asker


def test_blocks_that_two_prefills_computed_are_lent_and_evicted_in_their_order() -> None:
    """Both compute the same beginning at once, so the second one's blocks are not in the index;
    were they lent block by block, an ancestor could be evicted before its descendants.
    """
    house = world("reference", num_blocks={1: 24, 2: 40})
    house.submit(task(1, [1] * 33 + [2], new=2), D, prefill=P)
    house.submit(task(2, [1] * 33 + [3] * 40, new=60), D, prefill=P)
    run_until(house, lambda: 1 in house.ends and 2 not in house.ends)
    for number in range(3, 9):
        house.submit(task(number, [number] * 60, new=1), D, prefill=P)
        house.settle()
    house.quiet()
    for number in range(1, 9):
        house.verify(number)


def test_a_task_that_grows_takes_back_what_is_only_reserved() -> None:
    house = world("request", num_blocks={1: 40, 2: 12})
    house.submit(task(1, [1] * 20, new=150), D)
    run_until(house, lambda: house.tokens.get(1))
    house.submit(task(2, [2] * 100, new=5), D, prefill=P)
    assert asker_of(house).book.num_holding == 1
    while 1 not in house.ends:  # the lender never answers: all that is reserved stays so
        house.queue.clear()
        house.step(D)
    assert house.peers[D].machine.scheduler.runs, "the fetching task lives on"
    house.quiet()
    house.verify(1)
    house.verify(2)


def test_what_is_read_in_place_never_fills_the_lender() -> None:
    house = world("auto", num_blocks={1: 16, 2: 60})
    for number in range(1, 5):
        house.submit(task(number, [number] * 70, new=30), D, prefill=P)
    house.quiet()
    ways = {fact.labels[0][1] for fact in house.facts_of("kv.handover")}
    assert ways == {"reference", "layer"}
    for number in range(1, 5):
        house.verify(number)


def test_two_that_prefill_for_each_other_do_not_wait_for_each_other() -> None:
    """vllm#50719: each holds its reservation, and the prefill that would end it finds no room."""
    house = World({1: Role.COLOCATED, 2: Role.COLOCATED}, way="request", num_blocks=12)
    for number, to, lender in ((1, D, P), (2, P, D), (3, D, P), (4, P, D)):
        house.submit(task(number, [number] * 150, new=5), to, prefill=lender)
    house.quiet()
    for number in range(1, 5):
        house.verify(number)


@pytest.mark.parametrize("way", ["reference", "layer", "request"])
def test_cached_tokens_are_those_that_nobody_computed_for_the_task(way: str) -> None:
    house = world(way)
    house.submit(task(1, PROMPT, new=3), D, prefill=P)
    house.quiet()
    assert house.cached[1] == 0
    house.submit(task(2, PROMPT, new=3), D, prefill=P)
    house.quiet()
    assert house.cached[2] == 64
    house.submit(task(3, PROMPT + [5] * 40, new=3), D, prefill=P)
    house.quiet()
    assert house.cached[3] == 64 if way == "reference" else house.cached[3] in {64, 80}


def test_a_lease_that_was_not_renewed_is_not_read_any_more() -> None:
    """aws-do-eks#84: expired blocks were read."""
    house = world("reference")
    house.submit(task(1, PROMPT, new=100), D, prefill=P)
    run_until(house, lambda: len(house.tokens.get(1, [])) > 2)
    for _ in range(6):  # nothing that is said arrives, and the connection stands
        house.pass_time(2 * 10**9)
        house.queue.clear()
    assert lender_of(house).num_lendings == 0, "expired at the lender"
    assert not house.facts_of("kv.stale"), "it stopped before it found others' bytes"
    assert house.facts_of("kv.failed")
    house.quiet()
    house.verify(1)


def test_a_new_self_of_the_asker_ends_what_the_former_wanted() -> None:
    house = world("request")
    house.submit(task(1, PROMPT, new=5), D, prefill=P)
    house.deliver()
    assert lender_of(house).num_lendings == 1
    house.on(P, PeerJoined(peer=D, epoch=2))
    assert lender_of(house).num_lendings == 0


def test_the_arena_of_a_dead_lender_is_let_go_when_its_last_reader_ends() -> None:
    """vllm#58063, #49238: a replaced prefill cannot start since decoders still map its memory."""
    house = world("reference")
    house.submit(task(1, PROMPT, new=40), D, prefill=P)
    run_until(house, lambda: len(house.tokens.get(1, [])) > 2)
    house.kill(P)
    assert "local/kv/1" in house.peers[D].lent, "it is still read"
    house.quiet()
    house.verify(1)
    assert "local/kv/1" not in house.peers[D].lent


def test_siblings_of_one_prompt_copy_it_once() -> None:
    house = world("request")
    house.submit(task(1, PROMPT, new=5), D, prefill=P)
    for number in (2, 3):
        house.submit(task(number, PROMPT, new=5), D, prefill=P, leader=1)
    asks = [item for item in house.queue if isinstance(item[2], AskBlocks)]
    assert len(asks) == 1
    house.quiet()
    for number in (1, 2, 3):
        house.verify(number)
    assert len(house.facts_of("kv.handover")) == 1


def test_waiting_fetches_are_renewed() -> None:
    house = world("request")
    house.submit(task(1, PROMPT, new=5), D, prefill=P)
    house.queue.clear()
    house.pass_time(2 * 10**9)
    assert any(isinstance(item[2], RenewLeases) for item in house.queue)


def test_blocks_that_began_another_life_are_noticed_by_the_step_that_reads_them() -> None:
    """aws-do-eks#84: decode read blocks of somebody else and answered 200 OK."""
    house = world("reference", num_blocks={1: 12, 2: 40})
    house.submit(task(1, PROMPT, new=60), D, prefill=P)
    run_until(house, lambda: len(house.tokens.get(1, [])) > 2)
    lender_of(house).expire(10**15, [])  # as if its clock ran ahead
    house.submit(task(2, [9] * 150, new=20), P)
    house.settle()
    assert len(house.facts_of("kv.stale")) == 1
    house.quiet()
    house.verify(1)
    house.verify(2)


def test_words_that_came_late_prolong_nothing() -> None:
    """A lease lasts from when its renewal was said, however often and late the answer comes."""
    house = world("reference")
    house.submit(task(1, PROMPT, new=100), D, prefill=P)
    run_until(house, lambda: len(house.tokens.get(1, [])) > 2)
    house.pass_time(2 * 10**9)
    run_until(house, lambda: not house.queue)
    (fetch,) = asker_of(house).book.all()
    stood = fetch.stands_until
    late = LeasesStand(asks=(fetch.ask,), said=0)
    house.pass_time(10**9)
    house.on(D, Received(sender=P, epoch=1, message=late))
    assert fetch.stands_until == stood == 12 * 10**9
