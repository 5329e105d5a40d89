"""Which task goes to which executor, and when: lanes, policy, the bound of each executor."""

from collections.abc import Iterator

from tercet.base.errors import must
from tercet.base.ids import (
    BLOCK_TOKENS,
    TASKS_PER_JOB_MAX,
    Address,
    ExecutorId,
    TaskId,
    index_of,
    task_id,
)
from tercet.job_executor.choosing import Choosing
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.lane import Lane
from tercet.job_executor.records import ExecutorRecord, TaskRecord
from tercet.jobs.states import TaskEvent, TaskState, next_task_state
from tercet.messages.effects import Effect, Send, Wake
from tercet.messages.wire import Role
from tercet.routing.policies.least_load import least_load

PREFILL_TOKENS_MIN = 2 * BLOCK_TOKENS
"""A prompt of no more tokens is computed where it is decoded."""
NO_EXECUTOR = "no executor of "
"""Key of the `Wake` that ends the patience of a lane without executors, before the model."""


class Placing:
    """Owns the lanes; moves tasks between them and the executors that are usable."""

    def __init__(self, config: JobExecutorConfig, reply: Address) -> None:
        self._reply = reply
        self._num_tasks_max = config.max_tasks_per_executor
        self._patience_ns = int(config.no_executor_timeout_s * 1e9)
        self._choosing = Choosing(config.routing)
        self._lanes: dict[str, Lane] = {}
        self.num_waiting = 0
        """Tasks in all lanes."""

    @property
    def num_executors(self) -> int:
        """Executors that can take tasks now."""
        return sum(len(lane.executors) for lane in self._lanes.values())

    def append(self, task: TaskRecord, now: int, out: list[Effect]) -> None:
        """Let a new task wait for its turn."""
        lane = self._lane(task.model, now)
        lane.append(task)
        self.num_waiting += 1
        self._be_patient(lane, now, out)

    def put_back(self, tasks: list[TaskRecord], now: int, out: list[Effect]) -> None:
        """Let tasks of one model wait before all others, in the given order."""
        if not tasks:
            return
        lane = self._lane(tasks[0].model, now)
        for task in tasks:
            task.waiting_since = now
        lane.put_back(tasks)
        self.num_waiting += len(tasks)
        self._be_patient(lane, now, out)

    def remove(self, task: TaskRecord) -> None:
        """Take an ended task out of wherever it is; its state is `ENDED` by now."""
        record = task.executor
        if record is None:
            self.num_waiting -= 1
            lane = self._lanes[task.model]
            lane.leave()
            if not lane.num_waiting and not lane.executors:
                del self._lanes[task.model]
            return
        record.num_tokens -= task.num_pending
        task.prefilled()
        del record.tasks[task.wire]
        if record.trial is task:
            record.trial = None
        task.executor = None

    def open(self, record: ExecutorRecord, now: int) -> None:
        """From now on tasks may go to this executor."""
        self._lane(record.model, now).executors[record.executor] = record

    def close(self, record: ExecutorRecord, now: int) -> list[TaskRecord]:
        """Take an executor out and all tasks from it; gives them, oldest placement first."""
        self._choosing.gone(record.executor)
        lane = self._lanes.get(record.model)
        if lane is not None and lane.executors.pop(record.executor, None) is not None:
            lane.alone_since = now
            if not lane.executors and not lane.num_waiting:
                del self._lanes[record.model]
        lost = list(record.tasks.values())
        for task in lost:
            task.state = next_task_state(task.state, TaskEvent.LOSE, task.id)
            task.executor = None
            task.prefilled()
        record.tasks.clear()
        record.num_tokens = 0
        record.trial = None
        return lost

    def place(self, model: str, out: list[Effect]) -> TaskRecord | None:
        """Send as many waiting tasks of a model as its executors have room for.

        Gives a task, still waiting, that has no id left for the executor whose turn it is: it has
        to end before others are placed. None otherwise.
        """
        lane = self._lanes.get(model)
        if lane is None or not lane.executors:
            return None
        for suspect in (True, False):
            while (task := lane.first(suspect=suspect)) is not None:
                if suspect:
                    chosen = least_load(e for e in self._with_room(lane) if e.trial is None)
                else:
                    chosen = self._choose(lane, task)
                if chosen is None:
                    break
                record = lane.executors[chosen]
                name = name_for(task, record)
                if name is None:
                    return task
                lane.take(suspect=suspect)
                task.wire = name
                self._send(task, record, out)
        return None

    def overdue(self, model: str, now: int, out: list[Effect]) -> list[TaskRecord]:
        """Give the tasks that waited too long for an executor; look again for the others."""
        lane = self._lanes.get(model)
        if lane is None:
            return []
        lane.armed = False
        if lane.executors:
            return []
        late = [task for task in lane.waiting() if self._patience_end(lane, task) <= now]
        if len(late) < lane.num_waiting:
            self._be_patient(lane, now, out)
        return late

    def check(self) -> None:
        """Raise unless lanes and executors agree with their counts."""
        waiting = 0
        for lane in self._lanes.values():
            name = f"the lane of {lane.model!r}"
            tasks = list(lane.waiting())
            waiting += len(tasks)
            must(len(tasks) == lane.num_waiting, f"{name} counts {lane.num_waiting} wrongly")
            must(tasks or lane.executors, f"{name} stands without a use")
            must(not tasks or lane.executors or lane.armed, f"{name} would wait for ever")
            room = next(self._with_room(lane), None)
            must(
                room is None or lane.first(suspect=False) is None,
                f"a task waits in {name} though executor {room and room.executor} has room",
            )
            for record in lane.executors.values():
                must(record.usable, f"executor {record.executor} takes tasks but is not usable")
                must(record.num_tasks <= self._num_tasks_max, f"{record.executor} has too many")
        must(waiting == self.num_waiting, f"{waiting} tasks wait, counted {self.num_waiting}")

    def _lane(self, model: str, now: int) -> Lane:
        lane = self._lanes.get(model)
        if lane is None:
            lane = self._lanes[model] = Lane(model, now)
        return lane

    def _with_room(self, lane: Lane) -> Iterator[ExecutorRecord]:
        """Go through those that can take one more; prefill executors only where nobody else is."""
        takers = [e for e in lane.executors.values() if e.role is not Role.PREFILL]
        for record in takers or lane.executors.values():
            if record.num_tasks < self._num_tasks_max:
                yield record

    def _choose(self, lane: Lane, task: TaskRecord) -> ExecutorId | None:
        """Where a sibling is, so that the prompt is computed once; else the least load, away from
        executors that are busy with a suspect if there are others.
        """
        room = list(self._with_room(lane))
        near = None if task.job.job.n == 1 else placed_sibling(task)
        if near is not None and near.executor in room and near.executor.trial is None:
            return near.executor.executor
        calm = [e for e in room if e.trial is None]
        if any(e.role is Role.PREFILL for e in lane.executors.values()):
            return least_load(calm or room)  # who computes the prompt is another question
        return self._choosing.choose(task, calm or room)

    def _send(self, task: TaskRecord, record: ExecutorRecord, out: list[Effect]) -> None:
        leader = self._leader(task, record)
        self.num_waiting -= 1
        task.state = next_task_state(task.state, TaskEvent.PLACE, task.id)
        task.executor = record
        task.num_base = len(task.generated)
        task.fresh = False
        task.updates_before = record.num_updates
        record.tasks[task.wire] = task
        record.num_tokens += task.num_pending
        if task.suspect:
            record.trial = task
        prefill = self._prefill(task, record)
        if prefill is None:
            self._choosing.placed(task, record)
        message = task.message(self._reply, leader, prefill)
        out.append(Send(to=record.address, message=message, cause=task.job.cause))

    def _prefill(self, task: TaskRecord, record: ExecutorRecord) -> Address | None:
        """Name the executor that is to compute the prompt for one that decodes, if there is one and
        the prompt is worth it; from now on it counts for its load.
        """
        num_tokens = task.num_pending
        if record.role is not Role.DECODE or task.suspect or num_tokens <= PREFILL_TOKENS_MIN:
            return None
        if task.sampling.prompt_logprobs is not None:
            return None  # only who computes a prompt can tell of it
        lane = self._lanes[task.model]
        found = {e.executor: e for e in lane.executors.values() if e.role is Role.PREFILL}
        chosen = self._choosing.choose(task, [e.prefills for e in found.values()])
        if chosen is None:
            return None
        self._choosing.placed(task, found[chosen])
        load = found[chosen].prefills
        load.num_tasks += 1
        load.num_tokens += num_tokens
        task.prefill = (load, num_tokens)
        return found[chosen].address

    def _leader(self, task: TaskRecord, record: ExecutorRecord) -> TaskId | None:
        if task.suspect or task.job.job.n == 1:
            return None
        near = placed_sibling(task)
        if near is None or near.executor is not record or near.suspect or near.fresh:
            return None
        return near.wire

    def _patience_end(self, lane: Lane, task: TaskRecord) -> int:
        return max(lane.alone_since, task.waiting_since) + self._patience_ns

    def _be_patient(self, lane: Lane, now: int, out: list[Effect]) -> None:
        """Have a `Wake` under way while tasks wait for an executor that does not exist."""
        if lane.executors or lane.armed or not lane.num_waiting:
            return
        ends = (self._patience_end(lane, task) for task in lane.waiting())
        first = min((end for end in ends if end > now), default=now + self._patience_ns)
        lane.armed = True
        out.append(Wake(at=first, key=NO_EXECUTOR + lane.model, cause=lane.model))


def name_for(task: TaskRecord, record: ExecutorRecord) -> TaskId | None:
    """Give an id of the task's job under which this executor never spoke of the task, as far as
    words may still be under way: its own id, or one beyond those of the job's tasks. None if the
    job is so big, and the connection broke so often, that there is none.
    """
    job = task.job.job
    for index in range(index_of(task.id), TASKS_PER_JOB_MAX, job.num_tasks):
        alias = task_id(job.id, index)
        if alias not in record.left:
            return alias
    return None


def placed_sibling(task: TaskRecord) -> TaskRecord | None:
    """Give the lowest other choice of the same prompt that an executor has, if there is one."""
    job = task.job
    start = index_of(task.id) - task.choice
    for index in range(start, start + job.job.n):
        other = job.tasks.get(task_id(job.job.id, index))
        if other is not None and other is not task and other.state is not TaskState.WAITING:
            return other
    return None
