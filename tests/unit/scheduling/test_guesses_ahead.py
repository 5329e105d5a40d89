"""Counts ahead where a step may give several tokens: room for the most, plans for the least."""

import pytest
from executor_harness import Harness, task

from tercet.messages.plan import StepCost
from tercet.scheduling.config import SchedulingConfig

CHEAP_ROWS = StepCost(base_ns=1e6, per_row_ns=1e3, per_logit_ns=0.0, per_pair_ns=0.0)


def _harness(**options):
    """Short steps: two plans are under way all the time."""
    return Harness(
        cost=CHEAP_ROWS, scheduling=SchedulingConfig(max_slots=4, draft_max=12), **options
    )


@pytest.mark.parametrize("first", range(12))
def test_a_task_that_fits_to_the_last_block_never_asks_for_more(first):
    """Its last token is never computed, however many guesses are under way."""
    harness = _harness(num_blocks=3, context_max=49)
    harness.submit(task(1, [first] * 5, new=44))
    harness.drain()
    harness.verify(1)
    assert harness.engine.num_accepted > 3
    assert not any(fact.name == "task.preempted" for fact in harness.facts)


@pytest.mark.parametrize("new", range(40, 70))
def test_a_task_that_surely_ends_in_a_step_under_way_is_not_planned_again(new):
    harness = _harness(num_blocks=9)
    harness.engine.always_right = True
    harness.submit(task(1, [3] * 5, new=new))
    run = harness.machine.scheduler.runs[1]
    while harness.plans:
        others = len(harness.plans) - 1
        harness.step()
        if len(harness.plans) > others:
            assert len(run.tokens) + others < run.known_max
    harness.verify(1)
    assert harness.engine.steps < new / 2


def test_guesses_under_way_count_until_their_result():
    harness = _harness()
    harness.submit(task(1, [3] * 40, new=200))
    run = harness.machine.scheduler.runs[1]
    most = 0
    while harness.plans:
        named = [plan.guesses[0] - 1 for plan, _ in harness.plans if plan.guesses]
        assert run.drafts_ahead == sum(max(0, count) for count in named)
        assert run.context_most - 1 <= run.capacity, "room for the most that may be known"
        most = max(most, run.drafts_ahead)
        harness.step()
    assert most > 12, "two plans with guesses are under way at a time"
