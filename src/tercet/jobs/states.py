"""The states of a job and of a task, as tables: what is not written cannot happen.

task:             PLACE           START
    WAITING ---------> PLACED ---------> RUNNING --+ START (the executor began it anew)
       ^  ^              | LOSE            | LOSE <-+
       |  +--------------+                 |
       +-----------------------------------+
    every state but ENDED -- END --> ENDED

job:        START
    QUEUED ------> STARTED --+ START (a further task)
       | END          | END <+
       +---> ENDED <--+
"""

from collections.abc import Mapping
from enum import StrEnum

from tercet.base.errors import InvariantBroken
from tercet.base.ids import JobId, TaskId, show_job, show_task


class TaskState(StrEnum):
    WAITING = "waiting"
    """In the job executor's queue: no executor has it."""
    PLACED = "placed"
    """Sent to an executor that has not yet said that it began."""
    RUNNING = "running"
    """Its executor said that a step holds it, or held it."""
    ENDED = "ended"
    """The client was told how; nothing further is said about it."""


class TaskEvent(StrEnum):
    PLACE = "place"
    START = "start"
    LOSE = "lose"
    """Its executor is gone."""
    END = "end"


class JobState(StrEnum):
    QUEUED = "queued"
    """No task of it has ever started: it counts against the bound of the queue."""
    STARTED = "started"
    ENDED = "ended"


class JobEvent(StrEnum):
    START = "start"
    END = "end"


TASK_STEPS: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    (TaskState.WAITING, TaskEvent.PLACE): TaskState.PLACED,
    (TaskState.WAITING, TaskEvent.END): TaskState.ENDED,
    (TaskState.PLACED, TaskEvent.START): TaskState.RUNNING,
    (TaskState.PLACED, TaskEvent.LOSE): TaskState.WAITING,
    (TaskState.PLACED, TaskEvent.END): TaskState.ENDED,
    (TaskState.RUNNING, TaskEvent.START): TaskState.RUNNING,
    (TaskState.RUNNING, TaskEvent.LOSE): TaskState.WAITING,
    (TaskState.RUNNING, TaskEvent.END): TaskState.ENDED,
}

JOB_STEPS: Mapping[tuple[JobState, JobEvent], JobState] = {
    (JobState.QUEUED, JobEvent.START): JobState.STARTED,
    (JobState.QUEUED, JobEvent.END): JobState.ENDED,
    (JobState.STARTED, JobEvent.START): JobState.STARTED,
    (JobState.STARTED, JobEvent.END): JobState.ENDED,
}


def next_task_state(state: TaskState, event: TaskEvent, task: TaskId) -> TaskState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = TASK_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"task {show_task(task)} is {state}: it cannot {event}")
    return found


def next_job_state(state: JobState, event: JobEvent, job: JobId) -> JobState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = JOB_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"job {show_job(job)} is {state}: it cannot {event}")
    return found
