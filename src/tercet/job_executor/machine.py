"""The job executor's machine: places tasks, passes their streams on, recovers from losses.

    JobSubmitted -> tasks wait in the lane of their model -> least_load -> Send(SubmitTask)
    TaskUpdates  -> Emit(TaskOutput), in order; exactly one piece of every task has `finish` (I1)
    loss of an executor -> its tasks wait again, with `generated` = what the client has

A suspect (`blame`) runs alone, at most one on an executor, until it gains a token.
"""

from collections.abc import Iterable

from tercet.base.ids import Address, JobId, TaskId, show_task
from tercet.base.rand import Rand
from tercet.job_executor.blame import accuse, acquit, guilty, withdraw
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.fleet import Fleet, executor_at, remember_left
from tercet.job_executor.ledger import Ledger
from tercet.job_executor.placing import NO_EXECUTOR, Placing
from tercet.job_executor.records import ExecutorRecord, TaskRecord
from tercet.job_executor.standing import ExecutorStanding, Standing
from tercet.job_executor.stream import piece
from tercet.jobs.job import Failure, FailureCode, Finish, Job, TaskOutput
from tercet.jobs.states import TaskEvent, TaskState, next_task_state
from tercet.messages.effects import Effect, Emit, Fact, Send, Wake
from tercet.messages.events import (
    DrainRequested,
    JobCancelled,
    JobExecutorEvent,
    JobSubmitted,
    PeerGone,
    PeerJoined,
    Received,
    StopFound,
    Woke,
)
from tercet.messages.wire import CancelTask, Members, TaskUpdate, TaskUpdates

DRAIN = "drain"


class JobExecutor:
    """Owns every job of one front from its submission to its one end."""

    def __init__(self, config: JobExecutorConfig, *, address: Address, rand: Rand) -> None:
        self._config = config
        self._ledger = Ledger(rand)
        self._fleet = Fleet()
        self._placing = Placing(config, address)
        self._draining = False
        self._deadline = 0

    @property
    def ready(self) -> bool:
        """Whether a job that came now would be accepted and could be sent to an executor."""
        return not self._draining and self._placing.num_executors > 0

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def idle(self) -> bool:
        """Whether every accepted job has ended."""
        return not self._ledger.jobs

    def standing(self) -> Standing:
        """Count what there is, for health and metrics; O(executors)."""
        num_waiting = self._placing.num_waiting
        return Standing(
            ready=self.ready,
            draining=self._draining,
            num_queued_jobs=self._ledger.num_queued,
            num_running_jobs=len(self._ledger.jobs) - self._ledger.num_queued,
            num_waiting_tasks=num_waiting,
            num_placed_tasks=len(self._ledger.tasks) - num_waiting,
            executors=tuple(
                ExecutorStanding(
                    executor=record.executor,
                    model=record.model,
                    usable=record.usable,
                    num_tasks=record.num_tasks,
                    num_prompts=record.prefills.num_tasks,
                    load=record.load,
                )
                for record in self._fleet.all()
            ),
        )

    def on(self, event: JobExecutorEvent, now: int) -> list[Effect]:  # noqa: C901  one case an event
        """Take one event; the work is bounded by the tasks that it names or sets free."""
        out: list[Effect] = []
        match event:
            case Received(message=TaskUpdates() as updates):
                self._updates(updates, now, out)
            case JobSubmitted(job=job):
                self._submit(job, now, out)
            case JobCancelled(job=job_number):
                self._cancel(job_number, now, out)
            case StopFound(task=task_number):
                self._stop(task_number, now, out)
            case Received(sender="cluster", message=Members() as members, epoch=epoch):
                if self._fleet.news(epoch, members):
                    self._members(members, now, out)
            case PeerJoined():
                self._joined(event, now, out)
            case PeerGone():
                self._gone(event, now, out)
            case Woke(key=key):
                self._woke(key, now, out)
            case DrainRequested(deadline=deadline):
                self._drain(deadline, now, out)
            case Received():
                pass  # meant for another kind of machine
        return out

    def check(self) -> None:
        """Raise `InvariantBroken` unless jobs, tasks, lanes and executors agree."""
        self._ledger.check()
        self._fleet.check()
        self._placing.check()

    # what clients do

    def _submit(self, job: Job, now: int, out: list[Effect]) -> None:
        failure = self._refusal(job)
        if failure is not None:
            self._ledger.refuse(job, failure, out)
            return
        for task in self._ledger.open(job, now):
            self._placing.append(task, now, out)
        self._place(job.model, now, out)

    def _refusal(self, job: Job) -> Failure | None:
        config = self._config
        if self._draining:
            return Failure(FailureCode.SHUTTING_DOWN, "The server is shutting down.")
        num_queued = self._ledger.num_queued
        if num_queued >= config.max_queued_jobs:
            limit = f"the limit is {config.max_queued_jobs}."
            return Failure(FailureCode.OVERLOADED, f"{num_queued} requests wait already; {limit}")
        num_waiting = self._placing.num_waiting
        if num_waiting + job.num_tasks > config.max_queued_tasks:
            asked = f"{num_waiting} completions wait already and this request asks for "
            limit = f"{job.num_tasks} more; the limit is {config.max_queued_tasks}."
            return Failure(FailureCode.OVERLOADED, asked + limit)
        return None

    def _cancel(self, number: JobId, now: int, out: list[Effect]) -> None:
        job = self._ledger.jobs.get(number)
        if job is None:
            return
        for task in list(job.tasks.values()):
            self._abandon(task, out)
            self._end(task, TaskOutput(task=task.id, finish=Finish.CANCELLED), now, out)
        self._place(job.job.model, now, out)

    def _stop(self, number: TaskId, now: int, out: list[Effect]) -> None:
        task = self._ledger.tasks.get(number)
        if task is None:
            return
        self._abandon(task, out)
        self._end(task, TaskOutput(task=number, finish=Finish.STOP), now, out)
        self._place(task.model, now, out)

    # what executors say

    def _updates(self, message: TaskUpdates, now: int, out: list[Effect]) -> None:
        record = self._fleet.get(message.executor)
        if record is None:
            return
        record.load = message.load
        record.num_updates += bool(message.updates)
        room = False
        tasks = record.tasks
        for update in message.updates:
            task = tasks.get(update.task)
            if task is not None and self._take(task, update, now, out):
                room = True
        if room:
            self._place(record.model, now, out)

    def _take(self, task: TaskRecord, update: TaskUpdate, now: int, out: list[Effect]) -> bool:
        """Pass on what the task's executor says; tell whether there is room for another now."""
        record = task.executor
        if record is not None and record.left:
            # It read all that was sent before this task, and all its older words came before.
            record.left.clear()
        if update.started or (update.tokens and task.state is TaskState.PLACED):
            task.state = next_task_state(task.state, TaskEvent.START, task.id)
            self._ledger.started(task, now)
        output = piece(task, update)
        if output is None:
            return False
        gained = bool(output.tokens) and not task.fresh
        if gained:
            self._gained(task, now)
        if output.finish is not None:
            self._end(task, output, now, out)
            return True
        out.append(Emit(output=output, cause=task.job.cause))
        return gained

    def _gained(self, task: TaskRecord, now: int) -> None:
        """The first new token of a placement: nothing speaks against the task any more."""
        if task.executor is not None:
            task.executor.num_tokens -= task.num_pending
        task.prefilled()
        task.fresh = True
        acquit(task)
        if not task.job.first_token:
            task.job.first_token = now

    # who is there

    def _members(self, message: Members, now: int, out: list[Effect]) -> None:
        # All roles first: prefill executors take whole tasks only where nobody else is.
        named = [self._fleet.name(ready) for ready in message.executors]
        usable = [record for record in named if record.usable]
        for record in usable:
            self._placing.open(record, now)
        for record in self._fleet.absent(message):
            if record.connected:
                out.extend(_cancel_at(record, wire) for wire in record.tasks)
            self._lose(record, now, out)
            self._fleet.expel(record)
        for model in dict.fromkeys(record.model for record in usable):
            self._place(model, now, out)

    def _joined(self, event: PeerJoined, now: int, out: list[Effect]) -> None:
        number = executor_at(event.peer)
        if number is None:
            return
        former = self._fleet.former(number)
        if former is not None and former.epoch is not None:
            if former.epoch > event.epoch:
                return
            if former.connected:
                self._cut(former, now, out)
        record = self._fleet.joined(number, event.peer, event.epoch)
        out.extend(_cancel_at(record, wire) for wire in (*record.abandoned, *record.left))
        if record is former:
            withdraw(self._ledger.tasks.values(), record)
        if record.usable:
            self._open(record, now, out)

    def _gone(self, event: PeerGone, now: int, out: list[Effect]) -> None:
        record = self._fleet.at(event.peer)
        if record is not None and record.connected and record.epoch == event.epoch:
            self._cut(record, now, out)

    def _cut(self, record: ExecutorRecord, now: int, out: list[Effect]) -> None:
        """The connection ended: what was under way is lost, whether the executor lives or not."""
        self._lose(record, now, out)
        self._fleet.gone(record)

    def _open(self, record: ExecutorRecord, now: int, out: list[Effect]) -> None:
        self._placing.open(record, now)
        self._place(record.model, now, out)

    def _lose(self, record: ExecutorRecord, now: int, out: list[Effect]) -> None:
        """Take all tasks from an executor: they go elsewhere, or end if they may not try again."""
        remember_left(record)
        accused = accuse(record, self._config)
        lost = self._placing.close(record, now)
        if not lost:
            return
        self._placing.put_back(lost, now, out)
        for task in lost:
            if guilty(task, self._config):
                self._fail(task, FailureCode.EXECUTOR_LOST, _verdict(task), now=now, out=out)
            elif task.full:
                self._end(task, TaskOutput(task=task.id, finish=Finish.LENGTH), now, out)
        values = (("tasks", float(len(lost))), ("accused", float(len(accused))))
        labels = (("executor", str(record.executor)),)
        out.append(Fact(name="executor.lost", values=values, labels=labels, cause=record.address))
        self._place(record.model, now, out)

    # time

    def _woke(self, key: str, now: int, out: list[Effect]) -> None:
        if key == DRAIN:
            if self._draining and now >= self._deadline:
                self._end_all(now, out)
        elif key.startswith(NO_EXECUTOR):
            waited = f"No executor was ready within {self._config.no_executor_timeout_s:g} seconds."
            for task in self._placing.overdue(key[len(NO_EXECUTOR) :], now, out):
                self._fail(task, FailureCode.NO_EXECUTOR, waited, now=now, out=out)

    def _drain(self, deadline: int, now: int, out: list[Effect]) -> None:
        self._draining = True
        self._deadline = deadline
        if deadline <= now:
            self._end_all(now, out)
        else:
            out.append(Wake(at=deadline, key=DRAIN, cause=DRAIN))

    def _end_all(self, now: int, out: list[Effect]) -> None:
        detail = "The server shut down before the request was finished."
        tasks: Iterable[TaskRecord] = list(self._ledger.tasks.values())
        for task in tasks:
            self._abandon(task, out)
            self._fail(task, FailureCode.SHUTTING_DOWN, detail, now=now, out=out)

    # endings

    def _place(self, model: str, now: int, out: list[Effect]) -> None:
        detail = "The connection to its executor broke again and again."
        while (nameless := self._placing.place(model, out)) is not None:
            self._fail(nameless, FailureCode.EXECUTOR_LOST, detail, now=now, out=out)

    def _abandon(self, task: TaskRecord, out: list[Effect]) -> None:
        """Tell the task's executor, if it has one, to compute no more of it."""
        if task.executor is not None:
            out.append(_cancel_at(task.executor, task.wire))
            task.executor.abandoned.append(task.wire)

    def _fail(
        self, task: TaskRecord, code: FailureCode, detail: str, *, now: int, out: list[Effect]
    ) -> None:
        output = TaskOutput(task=task.id, finish=Finish.FAILED, failure=Failure(code, detail))
        self._end(task, output, now, out)

    def _end(self, task: TaskRecord, output: TaskOutput, now: int, out: list[Effect]) -> None:
        self._ledger.end(task, output, now, out)
        self._placing.remove(task)


def _cancel_at(record: ExecutorRecord, wire: TaskId) -> Send:
    return Send(to=record.address, message=CancelTask(task=wire), cause=show_task(wire))


def _verdict(task: TaskRecord) -> str:
    """Say why a task is not tried again."""
    if task.num_tries >= task.num_silent:
        deaths, begun = task.num_tries, "while they computed it"
    else:
        deaths, begun = task.num_silent, "soon after they were given it"
    return (
        f"{deaths} executors in a row died {begun}, each before it gained a new token, "
        f"so it is not tried again (completion {show_task(task.id)})."
    )
