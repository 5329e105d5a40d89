"""The books of a job executor: which jobs were accepted and have not ended, and how they end."""

from collections.abc import Mapping

from msgspec.structs import replace

from tercet.base.errors import must
from tercet.base.ids import TASKS_PER_JOB_MAX, JobId, TaskId, job_of, show_job, task_id
from tercet.base.rand import Rand
from tercet.job_executor.records import JobRecord, TaskRecord
from tercet.jobs.job import Failure, Finish, Job, TaskOutput
from tercet.jobs.states import (
    JobEvent,
    JobState,
    TaskEvent,
    TaskState,
    next_job_state,
    next_task_state,
)
from tercet.messages.effects import Effect, Emit, Fact


class Ledger:
    """Every accepted job, until its end; an ended one leaves nothing behind."""

    def __init__(self, rand: Rand) -> None:
        self._rand = rand
        self._jobs: dict[JobId, JobRecord] = {}
        self._tasks: dict[TaskId, TaskRecord] = {}
        self.num_queued = 0
        """Jobs of which no task has started."""

    @property
    def jobs(self) -> Mapping[JobId, JobRecord]:
        return self._jobs

    @property
    def tasks(self) -> Mapping[TaskId, TaskRecord]:
        return self._tasks

    def open(self, job: Job, now: int) -> list[TaskRecord]:
        """Accept a job; gives its tasks, the choices of one prompt beside each other.

        Without a seed of the client's each prompt gets its own, so that equal prompts of one job
        give different texts; the choices of a prompt differ by their number.
        """
        must(job.id not in self._jobs, f"job {show_job(job.id)} was submitted twice")
        must(
            0 < job.num_tasks <= TASKS_PER_JOB_MAX,
            f"job {show_job(job.id)} has {job.num_tasks} tasks",
        )
        record = JobRecord(job=job, cause=show_job(job.id), submitted=now)
        for number, prompt in enumerate(job.prompts):
            sampling = job.sampling
            if sampling.seed is None:
                sampling = replace(sampling, seed=self._rand.bits() >> 1)
            for choice in range(job.n):
                named = task_id(job.id, number * job.n + choice)
                task = TaskRecord(
                    id=named,
                    wire=named,
                    job=record,
                    prompt=prompt,
                    sampling=sampling,
                    choice=choice,
                    waiting_since=now,
                )
                record.tasks[task.id] = task
        self._jobs[job.id] = record
        self._tasks.update(record.tasks)
        self.num_queued += 1
        return list(record.tasks.values())

    def started(self, task: TaskRecord, now: int) -> None:
        """Take note that an executor began the task."""
        job = task.job
        if job.state is JobState.QUEUED:
            self.num_queued -= 1
            job.started = now
        job.state = next_job_state(job.state, JobEvent.START, job.job.id)

    def end(self, task: TaskRecord, output: TaskOutput, now: int, out: list[Effect]) -> None:
        """Give the client the last piece of a task, and forget the task; the job with its last."""
        job = task.job
        task.state = next_task_state(task.state, TaskEvent.END, task.id)
        del self._tasks[task.id], job.tasks[task.id]
        job.num_generated += len(task.generated)
        out.append(Emit(output=output, cause=job.cause))
        if job.tasks:
            return
        del self._jobs[job.job.id]
        if job.state is JobState.QUEUED:
            self.num_queued -= 1
        job.state = next_job_state(job.state, JobEvent.END, job.job.id)
        out.append(_told(job, output, now))

    def refuse(self, job: Job, failure: Failure, out: list[Effect]) -> None:
        """End a job that was not accepted, in the eyes of its client."""
        cause = show_job(job.id)
        for index in range(job.num_tasks):
            number = task_id(job.id, index)
            output = TaskOutput(task=number, finish=Finish.FAILED, failure=failure)
            out.append(Emit(output=output, cause=cause))
        labels = (("code", failure.code.value),)
        out.append(Fact(name="job.refused", labels=labels, cause=cause))

    def check(self) -> None:
        """Raise unless jobs and tasks agree, both ways."""
        queued = total = 0
        for number, job in self._jobs.items():
            name = f"job {show_job(number)}"
            must(job.tasks, f"{name} has no task left and did not end")
            must(job.state is not JobState.ENDED, f"{name} has ended and is still kept")
            queued += job.state is JobState.QUEUED
            total += len(job.tasks)
        for named, task in self._tasks.items():
            must(task.job.tasks.get(named) is task, f"task {named} is not one of its job's")
            must(job_of(named) in self._jobs, f"task {named} outlived its job")
            must(task.state is not TaskState.ENDED, f"task {named} has ended and is still kept")
            placed = task.executor is not None
            must(placed is (task.state is not TaskState.WAITING), f"task {named} is nowhere")
        must(total == len(self._tasks), f"{total} tasks of jobs, {len(self._tasks)} tasks")
        must(queued == self.num_queued, f"{queued} jobs are queued, counted {self.num_queued}")


def _told(job: JobRecord, output: TaskOutput, now: int) -> Fact:
    """The fact that a job ended: durations in seconds since it was submitted, and sizes."""
    seconds = 1e-9
    values = [
        ("duration_s", (now - job.submitted) * seconds),
        ("prompt_tokens", float(sum(map(len, job.job.prompts)))),
        ("generated_tokens", float(job.num_generated)),
    ]
    if job.started:
        values.append(("queued_s", (job.started - job.submitted) * seconds))
    if job.first_token:
        values.append(("first_token_s", (job.first_token - job.submitted) * seconds))
    finish = "" if output.finish is None else output.finish.value
    labels = (("model", job.job.model), ("finish", finish), ("request", job.job.request))
    return Fact(name="job.ended", values=tuple(values), labels=labels, cause=job.cause)
