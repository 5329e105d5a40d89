"""Virtual time: actions in order of (time, when they were asked for)."""

import heapq
from collections.abc import Callable

from tercet.base.errors import must

MS = 1_000_000
S = 1_000_000_000


class Timeline:
    """A clock that jumps from one action to the next."""

    def __init__(self) -> None:
        self.now = 0
        self._next = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Carry out an action at a time, or at once if that is past; equal times keep order."""
        self._next += 1
        heapq.heappush(self._heap, (max(time, self.now), self._next, action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def step(self) -> bool:
        """Carry out the next action; False when there is none."""
        if not self._heap:
            return False
        time, _, action = heapq.heappop(self._heap)
        must(time >= self.now, f"virtual time ran backwards from {self.now} to {time}")
        self.now = time
        action()
        return True
