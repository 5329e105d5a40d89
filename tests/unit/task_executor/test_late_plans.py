"""When the next step is planned: at once in a short step, late in a long one."""

from executor_harness import Harness, task

from tercet.messages.effects import RunStep, Wake
from tercet.messages.plan import StepCost
from tercet.task_executor.config import TaskExecutorConfig

LONG = StepCost(base_ns=1e8, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)
SHORT = StepCost(base_ns=1e6, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)
CONFIG = TaskExecutorConfig(late_plan_ns=20_000_000, plan_margin_ns=5_000_000)


def _wakes(effects):
    return [effect.at for effect in effects if isinstance(effect, Wake)]


def test_a_short_step_has_its_follower_at_once():
    harness = Harness(cost=SHORT, config=CONFIG)
    effects = harness.submit(task(1, [1], new=9))
    assert [effect.plan.step for effect in effects if isinstance(effect, RunStep)] == [1, 2]
    assert not _wakes(effects)
    assert len(harness.plans) == 2
    harness.drain()
    harness.verify(1)


def test_a_long_step_leaves_the_door_open_for_newcomers():
    harness = Harness(cost=LONG, config=CONFIG)
    effects = harness.submit(task(1, [1], new=9))
    assert _wakes(effects) == [95_000_000]
    assert len(harness.plans) == 1
    harness.now = 50_000_000
    assert not _wakes(harness.submit(task(2, [2], new=9))), "it is asked for already"
    harness.wake("plan")
    assert harness.now == 95_000_000
    assert len(harness.plans) == 2
    assert {opening.task.id for opening in harness.plans[1][0].opens} == {2}


def test_the_clock_of_a_step_begins_when_the_one_before_ends():
    harness = Harness(cost=LONG, config=CONFIG)
    harness.submit(task(1, [1], new=9))
    harness.wake("plan")
    harness.now = 0
    effects = harness.step()
    assert harness.now == 100_000_000
    assert _wakes(effects) == [195_000_000]


def test_a_step_that_ends_before_its_wake_is_followed_at_once():
    harness = Harness(cost=LONG, config=CONFIG)
    harness.submit(task(1, [1], new=9))
    plan = harness.plans[0][0]
    harness.plans[0] = (plan, 10_000_000)
    effects = harness.step()
    assert any(isinstance(effect, RunStep) for effect in effects)
    assert _wakes(effects) == [105_000_000]
    harness.wake("plan")
    harness.drain()
    harness.verify(1)


def test_an_idle_machine_answers_a_stale_wake_with_nothing():
    harness = Harness(cost=LONG, config=CONFIG)
    harness.submit(task(1, [1], new=1))
    harness.drain()
    assert harness.wake("plan") == []


def test_at_most_two_plans_are_under_way():
    harness = Harness(cost=SHORT, config=CONFIG)
    for number in range(1, 9):
        harness.submit(task(number, [number], new=9))
        assert len(harness.plans) <= 2
