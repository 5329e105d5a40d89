"""The tasks that wait for an executor of one model, and the executors that serve it."""

from collections import deque
from collections.abc import Iterator, Sequence

from tercet.base.ids import ExecutorId
from tercet.job_executor.records import ExecutorRecord, TaskRecord
from tercet.jobs.states import TaskState


class Lane:
    """First come, first served; suspects apart, so that nobody waits behind them.

    A task that ended while it waited stays in the queue as a husk until its turn or until half of
    the queue is husks, so that ending a task costs no search.
    """

    def __init__(self, model: str, now: int) -> None:
        self.model = model
        self.executors: dict[ExecutorId, ExecutorRecord] = {}
        """Those that can take tasks now."""
        self.alone_since = now
        """Since when `executors` is empty, if it is."""
        self.armed = False
        """A `Wake` is under way that will look for tasks that waited too long."""
        self._waiting: deque[TaskRecord] = deque()
        self._suspects: deque[TaskRecord] = deque()
        self._num_husks = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._suspects) - self._num_husks

    def append(self, task: TaskRecord) -> None:
        """Let a new task wait at the end."""
        self._waiting.append(task)

    def put_back(self, tasks: Sequence[TaskRecord]) -> None:
        """Let tasks that lost their executor wait before all others, in the given order."""
        for task in reversed(tasks):
            (self._suspects if task.suspect else self._waiting).appendleft(task)

    def first(self, *, suspect: bool) -> TaskRecord | None:
        """Give the task whose turn it is, without taking it."""
        queue = self._suspects if suspect else self._waiting
        while queue and queue[0].state is not TaskState.WAITING:
            queue.popleft()
            self._num_husks -= 1
        return queue[0] if queue else None

    def take(self, *, suspect: bool) -> None:
        """Take the task that `first` gave."""
        (self._suspects if suspect else self._waiting).popleft()

    def leave(self) -> None:
        """Count one waiting task that has just ended."""
        self._num_husks += 1
        if self._num_husks > 16 and self._num_husks > self.num_waiting:
            self._waiting = deque(t for t in self._waiting if t.state is TaskState.WAITING)
            self._suspects = deque(t for t in self._suspects if t.state is TaskState.WAITING)
            self._num_husks = 0

    def waiting(self) -> Iterator[TaskRecord]:
        """Go through the tasks that wait, suspects first."""
        for queue in (self._suspects, self._waiting):
            for task in queue:
                if task.state is TaskState.WAITING:
                    yield task
