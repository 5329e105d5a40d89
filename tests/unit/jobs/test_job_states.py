import pytest

from tercet.base.errors import InvariantBroken
from tercet.base.ids import JobId, TaskId
from tercet.jobs.states import (
    JOB_STEPS,
    TASK_STEPS,
    JobEvent,
    JobState,
    TaskEvent,
    TaskState,
    next_job_state,
    next_task_state,
)

TASK = TaskId(((1 << 32 | 5) << 12) | 2)


@pytest.mark.parametrize("state", TaskState)
@pytest.mark.parametrize("event", TaskEvent)
def test_every_pair_of_a_task_is_a_row_or_a_story(state: TaskState, event: TaskEvent) -> None:
    if (state, event) in TASK_STEPS:
        assert next_task_state(state, event, TASK) is TASK_STEPS[state, event]
    else:
        with pytest.raises(InvariantBroken, match=f"task 1.5/2 is {state}: it cannot {event}"):
            next_task_state(state, event, TASK)


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("event", JobEvent)
def test_every_pair_of_a_job_is_a_row_or_a_story(state: JobState, event: JobEvent) -> None:
    job = JobId(1 << 32 | 5)
    if (state, event) in JOB_STEPS:
        assert next_job_state(state, event, job) is JOB_STEPS[state, event]
    else:
        with pytest.raises(InvariantBroken, match=f"job 1.5 is {state}: it cannot {event}"):
            next_job_state(state, event, job)


def test_nothing_leads_out_of_an_end_and_everything_leads_there() -> None:
    assert not [pair for pair in TASK_STEPS if pair[0] is TaskState.ENDED]
    assert not [pair for pair in JOB_STEPS if pair[0] is JobState.ENDED]
    assert all(
        (state, TaskEvent.END) in TASK_STEPS for state in TaskState if state is not TaskState.ENDED
    )
    assert all(
        (state, JobEvent.END) in JOB_STEPS for state in JobState if state is not JobState.ENDED
    )
