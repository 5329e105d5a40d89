"""Who waits: first come, first served, and siblings that wait for one another.

waiting     [ 3 | 7 | 8 | 12 ... ]      in order of arrival; a preempted task comes back to its
                                        old place
following   { leader 7: [9, 10] }       join `waiting` at their own place once the leader has
                                        computed the prompt, or is gone
"""

from bisect import bisect_left, insort

from tercet.base.errors import must
from tercet.base.ids import TaskId
from tercet.scheduling.run import TaskRun
from tercet.scheduling.states import RunState


def _order(run: TaskRun) -> int:
    return run.order


class WaitingQueue:
    """All runs that have no slot and no blocks."""

    def __init__(self) -> None:
        self.waiting: list[TaskRun] = []
        self._following: dict[TaskId, list[TaskRun]] = {}
        self._num_following = 0

    def __len__(self) -> int:
        return len(self.waiting) + self._num_following

    @property
    def head(self) -> TaskRun | None:
        return self.waiting[0] if self.waiting else None

    def starves_before(self, run: TaskRun, *, max_passes: int) -> bool:
        """Whether the first was here before it and was passed over so often that nothing begins."""
        head = self.head
        return head is not None and head.passed >= max_passes and head.order < run.order

    def add(self, run: TaskRun) -> None:
        """Queue a run in its state: FOLLOWING behind its leader, WAITING in order of arrival."""
        if run.state is RunState.FOLLOWING:
            must(run.leader is not None, f"task {run.name} follows nobody")
            if run.leader is not None:
                self._following.setdefault(run.leader, []).append(run)
                self._num_following += 1
            return
        must(run.state is RunState.WAITING, f"task {run.name} is {run.state.value} in the queue")
        insort(self.waiting, run, key=_order)

    def remove(self, run: TaskRun) -> None:
        """Take out a run that ended."""
        if run.leader in self._following:
            siblings = self._following[run.leader]
            if run in siblings:
                siblings.remove(run)
                self._num_following -= 1
                if not siblings:
                    del self._following[run.leader]
                return
        at = bisect_left(self.waiting, run.order, key=_order)
        must(
            at < len(self.waiting) and self.waiting[at] is run, f"task {run.name} is not in a queue"
        )
        del self.waiting[at]

    def take(self, at: int) -> TaskRun:
        """Take out the run at a place; all before it are passed over once."""
        for run in self.waiting[:at]:
            run.passed += 1
        return self.waiting.pop(at)

    def free_followers(self, leader: TaskId) -> None:
        """Let those who waited for this leader wait for room only."""
        for run in self._following.pop(leader, ()):
            self._num_following -= 1
            run.become(RunState.WAITING)
            insort(self.waiting, run, key=_order)

    def leaders(self) -> list[TaskId]:
        return list(self._following)

    def check(self) -> None:
        """Raise unless order, states and counts agree; O(waiting)."""
        before = -1
        for run in self.waiting:
            must(run.order > before, f"task {run.name} is out of order in the queue")
            must(run.state is RunState.WAITING, f"task {run.name} is {run.state.value}, queued")
            must(run.holding is None, f"task {run.name} waits and holds blocks")
            must(run.flights == 0, f"task {run.name} waits and is in a plan")
            before = run.order
        found = 0
        for leader, siblings in self._following.items():
            must(siblings, f"nobody follows {leader}")
            found += len(siblings)
            for run in siblings:
                must(run.state is RunState.FOLLOWING, f"task {run.name} is {run.state.value}")
        must(found == self._num_following, f"{found} follow, {self._num_following} are counted")
