"""Whose values are asked for (again) while their task waits its turn.

no room      for values that are known to be somewhere: as soon as there is some
long queue   what was not stored when a task came may be by now: its own conversation's last turn,
             or the same document for another. The next few in line ask every second.
"""

from collections.abc import Iterator

from tercet.base.ids import TaskId
from tercet.cache.rtc import Rtc
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState

NUM_SHORT_MAX = 8
"""Tasks in a row that are looked at when there is more room."""
NUM_NEXT = 4
"""Tasks next in line that ask again."""
LOOK_NS = 1_000_000_000


class Prefetcher:
    """Remembers who had no room, and when the line was last looked at."""

    def __init__(self, scheduler: Scheduler, rtc: Rtc) -> None:
        self._scheduler = scheduler
        self._rtc = rtc
        self.short: dict[TaskId, TaskRun] = {}
        """Those for whose values there was no room."""
        self._room_seen = 0
        self._looked_at = 0

    @property
    def waits(self) -> bool:
        """Whether anybody may be due at some time."""
        return bool(self.short or self._scheduler.num_waiting)

    def due(self, now: int, *, spare: int) -> Iterator[TaskRun]:
        """Give the tasks that wait and whose values shall be asked for now."""
        if self.short:
            yield from self._with_room(spare)
        if now - self._looked_at >= LOOK_NS:
            self._looked_at = now
            yield from self._scheduler.queue.waiting[:NUM_NEXT]

    def _with_room(self, spare: int) -> Iterator[TaskRun]:
        """If there is more room than at the last look, those who need no more than that."""
        room, self._room_seen = self._room_seen, self._rtc.cache.available
        if self._room_seen <= room:
            return
        for run in list(self.short.values()):
            if run.state is not RunState.WAITING:
                del self.short[run.id]
        waiting = list(self.short.values())[:NUM_SHORT_MAX]
        asked = [(run.task.namespace, run.tokens) for run in waiting]
        for place in self._rtc.prefetch_plan(asked, spare=spare):
            del self.short[waiting[place].id]
            yield waiting[place]
