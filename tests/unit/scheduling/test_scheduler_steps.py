"""What steps hold: order, chunks, decodes in turn, hits, preemption."""

from array import array

import pytest
from executor_harness import Harness, task

from tercet.base.errors import InvariantBroken
from tercet.messages.plan import StepCost
from tercet.scheduling.config import SchedulingConfig

SLOW = StepCost(base_ns=0.0, per_row_ns=1e7, per_logit_ns=0.0, per_pair_ns=0.0)  # 50 rows a step


def _rows(harness, at=-1):
    """slot -> rows of a plan."""
    plan = harness.plans[at][0]
    slots, rows = array("i"), array("i")
    slots.frombytes(plan.slots)
    rows.frombytes(plan.rows)
    return dict(zip(slots, rows, strict=True))


def _slot_of(harness, number):
    return harness.machine.scheduler.running[number].slot


def test_a_long_prompt_is_computed_in_chunks_beside_decodes():
    harness = Harness(cost=SLOW)
    harness.submit(task(1, [1] * 10, new=200))
    harness.step()
    harness.submit(task(2, [2] * 130, new=2))
    chunks, decodes = [], 0
    while 2 not in harness.ends:
        if not harness.plans:
            harness.wake("plan")
        rows = _rows(harness, 0)
        running = harness.machine.scheduler.running
        if 2 in running:
            chunks.append(rows.get(_slot_of(harness, 2), 0))
            decodes += rows.get(_slot_of(harness, 1), 0) == 1
        assert sum(rows.values()) <= 50
        harness.step()
    assert [rows for rows in chunks if rows > 1] == [48, 48, 34]
    assert decodes == len(chunks), "whoever decodes never waits for a prompt"
    harness.cancel(1)
    harness.drain()


def test_decodes_take_turns_when_a_step_cannot_hold_them_all():
    slow = StepCost(base_ns=0.0, per_row_ns=2e8, per_logit_ns=0.0, per_pair_ns=0.0)
    harness = Harness(cost=slow)
    for number in range(1, 6):
        harness.submit(task(number, [number], new=9))
    harness.drain()
    for number in range(1, 6):
        harness.verify(number)
    assert harness.engine.max_rows_seen <= 3
    lengths = [len(harness.updates[n]) for n in range(1, 6)]
    assert lengths == [10] * 5


def test_the_next_task_hits_what_the_first_computed():
    harness = Harness()
    prompt = [*range(40)]
    harness.submit(task(1, prompt))
    harness.drain()
    harness.submit(task(2, prompt))
    harness.drain()
    assert [harness.hit_of(n) for n in (1, 2)] == [0, 32]
    harness.verify(2)


def test_a_whole_hit_leaves_one_token_to_compute():
    harness = Harness()
    for number in (1, 2):
        harness.submit(task(number, [*range(32)]))
        harness.drain()
        harness.verify(number)
    assert harness.hit_of(2) == 16


def test_generated_tokens_are_found_by_the_next_turn_of_a_talk():
    harness = Harness()
    harness.submit(task(1, [*range(20)], new=30))
    harness.drain()
    said = [*range(20), *harness.tokens[1]]
    harness.submit(task(2, [*said, 1, 2]))
    harness.drain()
    assert harness.hit_of(2) == 48
    harness.verify(2)


def test_tenants_share_nothing():
    harness = Harness()
    for number, tenant in ((1, "a"), (2, "b"), (3, "a")):
        harness.submit(task(number, [*range(40)], namespace=tenant))
        harness.drain()
    assert [harness.hit_of(n) for n in (1, 2, 3)] == [0, 0, 32]


def test_prompt_logprobs_hit_nothing():
    harness = Harness()
    for number, wanted in ((1, None), (2, 0)):
        harness.submit(task(number, [*range(40)], prompt_logprobs=wanted))
        harness.drain()
    assert harness.hit_of(2) == 0


def test_the_latest_steps_back_when_an_earlier_one_must_grow():
    harness = Harness(num_blocks=6, context_max=96)
    harness.submit(task(1, [1] * 14, new=70))
    harness.submit(task(2, [2] * 14, new=60))
    harness.drain()
    preempted = [fact.cause for fact in harness.facts if fact.name == "task.preempted"]
    assert preempted
    assert set(preempted) == {"0.0/2"}, "the first is never preempted"
    for number in (1, 2):
        harness.verify(number)
    assert harness.started == [1, 2], "coming back is no new start"


def test_the_latest_steps_back_when_it_must_grow_itself():
    harness = Harness(num_blocks=6, context_max=96)
    harness.submit(task(1, [1] * 62, new=2 + 16))  # its fifth block lasts until the end
    harness.submit(task(2, [2] * 10, new=40))
    harness.drain()
    preempted = [fact.cause for fact in harness.facts if fact.name == "task.preempted"]
    assert set(preempted) == {"0.0/2"}
    for number in (1, 2):
        harness.verify(number)


def test_whoever_had_to_go_back_is_taken_up_again():
    """sglang#6857: a decode out of memory put its request back, and nobody ever took it again."""
    harness = Harness(num_blocks=5, context_max=80)
    for number in range(1, 7):
        harness.submit(task(number, [number] * 20, new=50))
    harness.drain()
    for number in range(1, 7):
        harness.verify(number)
    assert any(fact.name == "task.preempted" for fact in harness.facts)


def test_a_full_cache_does_not_stop_the_next_task():
    """sglang#30532, #3752, #7553: all blocks `evictable`, and the scheduler stood still."""
    harness = Harness(num_blocks=8, context_max=128)
    for number in range(1, 20):
        harness.submit(task(number, [number] * 40, new=60))
    harness.drain()
    assert len(harness.ends) == 19
    assert harness.machine.cache.stats().evictions > 0
    assert harness.machine.cache.available == 8


def test_a_small_task_may_pass_a_big_one_but_not_for_ever():
    harness = Harness(
        num_blocks=10,
        context_max=160,
        scheduling=SchedulingConfig(max_passes=2, max_slots=8),
    )
    harness.submit(task(1, [1] * 60, new=60))
    harness.submit(task(2, [2] * 120, new=5))  # no room beside the first
    for number in range(3, 9):
        harness.submit(task(number, [number] * 3, new=3))
    harness.drain()
    assert harness.started.index(2) == 3
    assert harness.started[:3] == [1, 3, 4]
    assert harness.started[4:] == [5, 6, 7, 8]


def test_without_passes_service_is_by_arrival():
    harness = Harness(
        num_blocks=10, context_max=160, scheduling=SchedulingConfig(max_passes=0, max_slots=8)
    )
    harness.submit(task(1, [1] * 60, new=60))
    harness.submit(task(2, [2] * 120, new=5))
    harness.submit(task(3, [3] * 3, new=3))
    harness.drain()
    assert harness.started == [1, 2, 3]


@pytest.mark.parametrize("what", ["slot", "flights", "block", "fresh", "idle"])
def test_what_is_broken_on_purpose_is_caught(what):
    harness = Harness()
    harness.submit(task(1, [1] * 20, new=50))
    harness.submit(task(2, [2] * 20, new=50))
    for _ in range(4):
        harness.step()
    scheduler = harness.machine.scheduler
    first, second = scheduler.running.values()
    if what == "slot":
        first.slot = second.slot
    elif what == "flights":
        first.flights += 1
    elif what == "block":
        harness.machine.cache.pool.drop(first.holding.table[0])
    elif what == "fresh":
        scheduler.num_fresh += 1
    else:
        scheduler.flights.clear()
    with pytest.raises(InvariantBroken):
        harness.machine.check(whole=True)
