"""Bounds, patience and the end of a front."""

import pytest
from front_cases import SECOND, Front, cancelled, ends, outputs, placed, wakes
from msgspec.structs import replace

from tercet.base.errors import Invalid, InvariantBroken
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.placing import NO_EXECUTOR
from tercet.jobs.job import FailureCode, Finish
from tercet.messages.effects import Effect
from tercet.messages.events import DrainRequested, JobCancelled, Woke
from tercet.messages.wire import TaskUpdate


def codes(effects: list[Effect]) -> list[FailureCode]:
    return [output.failure.code for output in outputs(effects) if output.failure is not None]


@pytest.mark.parametrize("executors", [0, 1])
def test_one_job_too_many_is_answered_at_once(executors: int) -> None:
    front = Front(JobExecutorConfig(max_queued_jobs=2), executors=executors)
    first = front.job()
    sent = placed(front.submit(first))
    front.submit()
    effects = front.submit(front.job((1,), n=2))
    assert codes(effects) == [FailureCode.OVERLOADED] * 2
    assert ends(effects) == [Finish.FAILED] * 2
    if executors:
        front.say(0, TaskUpdate(sent[0][1].task.id, started=True))
    else:
        front.on(JobCancelled(job=first.id))
    assert codes(front.submit()) == [], "a job that started does not count"


def test_a_job_of_too_many_completions_is_answered_at_once() -> None:
    front = Front(JobExecutorConfig(max_queued_tasks=10))
    assert codes(front.submit(front.job((1,), n=8))) == []
    assert codes(front.submit(front.job((1,), n=3))) == [FailureCode.OVERLOADED] * 3


def test_patience_without_an_executor_ends() -> None:
    """production-stack#1003: no executor yet is a retryable refusal, after a wait, never a 404."""
    front = Front(JobExecutorConfig(no_executor_timeout_s=10.0))
    key = NO_EXECUTOR + "m"
    assert wakes(front.submit()) == {key: front.now + 10 * SECOND}
    front.now += 4 * SECOND
    assert wakes(front.submit()) == {}, "one look is under way already"
    front.now += 6 * SECOND
    effects = front.on(Woke(key=key))
    assert codes(effects) == [FailureCode.NO_EXECUTOR]
    assert wakes(effects) == {key: front.now + 4 * SECOND}
    front.now += 4 * SECOND
    assert codes(front.on(Woke(key=key))) == [FailureCode.NO_EXECUTOR]
    assert front.machine.idle


def test_an_executor_in_time_ends_the_wait() -> None:
    front = Front(JobExecutorConfig(no_executor_timeout_s=10.0))
    front.submit()
    front.join(0)
    assert placed(front.members(0))
    front.now += 20 * SECOND
    assert front.on(Woke(key=NO_EXECUTOR + "m")) == []
    # Losing it begins a new wait.
    assert wakes(front.gone(0)) == {NO_EXECUTOR + "m": front.now + 10 * SECOND}


def test_waiting_for_busy_executors_has_no_such_end() -> None:
    front = Front(JobExecutorConfig(max_tasks_per_executor=1), executors=1)
    front.submit()
    assert wakes(front.submit()) == {}


def test_models_do_not_wait_behind_each_other() -> None:
    front = Front(executors=1)
    for _ in range(3):
        assert placed(front.submit(replace(front.job(), model="other"))) == []
    assert placed(front.submit())


def test_draining_lets_the_running_finish_until_the_deadline() -> None:
    front = Front(executors=1)
    one = placed(front.submit())[0][1].task.id
    two = placed(front.submit())[0][1].task.id
    deadline = front.now + 5 * SECOND
    assert wakes(front.on(DrainRequested(deadline=deadline))) == {"drain": deadline}
    assert front.machine.draining
    assert not front.machine.ready
    assert codes(front.submit()) == [FailureCode.SHUTTING_DOWN]
    assert ends(front.say(0, TaskUpdate(one, True, (5,), Finish.LENGTH))) == [Finish.LENGTH]
    assert not front.machine.idle
    front.now = deadline
    effects = front.on(Woke(key="drain"))
    assert codes(effects) == [FailureCode.SHUTTING_DOWN]
    assert cancelled(effects) == [("executor/0", two)]
    assert front.machine.idle


def test_a_second_signal_ends_everything_at_once() -> None:
    front = Front(executors=1)
    front.submit()
    front.submit(front.job((1,), n=3))
    front.on(DrainRequested(deadline=front.now + 5 * SECOND))
    effects = front.on(DrainRequested(deadline=front.now))
    assert codes(effects) == [FailureCode.SHUTTING_DOWN] * 4


def test_nothing_stays_of_what_ended() -> None:
    front = Front(executors=1)
    for _ in range(50):
        job = front.job((1,), n=2)
        front.submit(job)
        front.on(JobCancelled(job=job.id))
    standing = front.machine.standing()
    assert standing.num_queued_jobs == standing.num_running_jobs == 0
    assert standing.num_placed_tasks == standing.num_waiting_tasks == 0
    assert standing.executors[0].num_tasks == 0


def test_a_job_given_twice_is_a_broken_program() -> None:
    front = Front()
    job = front.job()
    front.submit(job)
    with pytest.raises(InvariantBroken, match="submitted twice"):
        front.submit(job)


@pytest.mark.parametrize(
    ("name", "value"), [("max_queued_jobs", 0), ("max_tries", -1), ("no_executor_timeout_s", 0.0)]
)
def test_a_bad_setting_is_named(name: str, value: float) -> None:
    with pytest.raises(Invalid, match=f"{name} is {value}; expected"):
        JobExecutorConfig(**{name: value})  # type: ignore[arg-type]
