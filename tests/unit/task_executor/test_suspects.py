"""A suspect runs with no other task until it gains a token, and the innocent are not started."""

from array import array

from executor_harness import Harness, task

from tercet.messages.effects import RunStep
from tercet.scheduling.config import SchedulingConfig


def _slots(plan):
    values = array("i")
    values.frombytes(plan.slots)
    return len(values)


def _drain_watching(harness, suspects):
    """Step to the end. While a suspect is started and has no token, nobody else may be in a step
    with it, nor be started without a token.
    """
    while harness.plans:
        runs = harness.machine.scheduler.runs
        blamed = [n for n in suspects if n in harness.started and n in runs and not runs[n].gained]
        assert len(blamed) <= 1
        if blamed:
            assert all(_slots(plan) == 1 for plan, _ in harness.plans)
            fresh = [run.id for run in runs.values() if run.started and not run.gained]
            assert fresh == blamed, "an innocent task would be blamed"
        harness.step()
    harness.drain()


def test_others_pause_and_go_on():
    harness = Harness()
    for number in (1, 2):
        harness.submit(task(number, [number] * 20, new=60))
    for _ in range(5):
        harness.step()
    harness.submit(task(3, [3] * 20, new=30), alone=True)
    harness.submit(task(4, [4] * 20, new=30))
    assert 3 not in harness.started
    _drain_watching(harness, [3])
    for number in (1, 2, 3, 4):
        harness.verify(number)
    assert harness.started == [1, 2, 3, 4]


def test_several_suspects_run_one_after_another():
    harness = Harness(scheduling=SchedulingConfig(max_rows=128))
    harness.submit(task(1, [1] * 200, new=60))
    for number in (2, 3, 4):
        harness.submit(task(number, [number] * 200, new=20), alone=True)
    harness.submit(task(5, [5] * 9, new=20))
    _drain_watching(harness, [2, 3, 4])
    for number in range(1, 6):
        harness.verify(number)


def test_a_suspect_waits_for_those_that_could_be_blamed():
    harness = Harness(scheduling=SchedulingConfig(max_rows=128))
    harness.submit(task(1, [1] * 400, new=9))
    harness.submit(task(2, [2], new=9), alone=True)
    while 2 not in harness.started:
        assert harness.plans
        harness.step()
    assert harness.machine.scheduler.runs[1].gained
    _drain_watching(harness, [2])
    for number in (1, 2):
        harness.verify(number)


def test_a_suspect_takes_the_room_of_those_that_pause():
    harness = Harness(num_blocks=8, context_max=128)
    harness.submit(task(1, [1] * 60, new=50))
    harness.submit(task(2, [2] * 20, new=30))
    for _ in range(4):
        harness.step()
    harness.submit(task(3, [3] * 100, new=28), alone=True)
    _drain_watching(harness, [3])
    for number in (1, 2, 3):
        harness.verify(number)


def test_a_cancelled_suspect_lets_the_others_go_on():
    harness = Harness()
    harness.submit(task(1, [1] * 20, new=60))
    for _ in range(3):
        harness.step()
    harness.submit(task(2, [2] * 20, new=30), alone=True)
    while 2 not in harness.started:
        harness.step()
    effects = harness.cancel(2)
    assert not any(isinstance(effect, RunStep) for effect in effects), "it may still kill"
    _drain_watching(harness, [])
    harness.verify(1)


def test_a_suspect_in_the_queue_is_passed_by_nobody():
    harness = Harness(scheduling=SchedulingConfig(max_slots=1))
    harness.submit(task(1, [1], new=9))
    harness.submit(task(2, [2], new=9), alone=True)
    harness.submit(task(3, [3], new=9))
    _drain_watching(harness, [2])
    assert harness.started == [1, 2, 3]


def test_who_was_preempted_before_its_first_token_comes_in_before_a_suspect():
    """It was told to have started, so a death while the suspect runs would be blamed on it."""
    harness = Harness(
        num_blocks=12, context_max=192, scheduling=SchedulingConfig(max_rows=16, max_slots=4)
    )
    harness.submit(task(1, [1] * 15, new=170))
    for _ in range(20):
        harness.step()
    harness.submit(task(2, [2] * 100, new=20), alone=True)
    harness.submit(task(3, [3] * 150, new=20))
    _drain_watching(harness, [2])
    scheduler = harness.machine.scheduler
    assert not scheduler.runs
    for number in (1, 2, 3):
        harness.verify(number)


def test_a_sibling_waits_for_the_prompt_of_its_leader():
    harness = Harness(scheduling=SchedulingConfig(max_rows=128))
    harness.submit(task(1, [*range(300)], new=9))
    for number in (2, 3):
        harness.submit(task(number, [*range(300)], new=9), leader=1)
    harness.drain()
    assert [harness.hit_of(n) for n in (1, 2, 3)] == [0, 288, 288]
    for number in (1, 2, 3):
        harness.verify(number)


def test_a_sibling_whose_leader_is_gone_does_not_wait():
    harness = Harness(scheduling=SchedulingConfig(max_rows=128))
    harness.submit(task(1, [*range(300)], new=9))
    harness.submit(task(2, [*range(300)], new=9), leader=1)
    harness.submit(task(3, [*range(300)], new=9), leader=77)
    harness.cancel(1)
    harness.drain()
    for number in (2, 3):
        harness.verify(number)
