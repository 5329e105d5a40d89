"""Executors that are to be born once this host has their model's image."""

from tercet.base.ids import ExecutorId
from tercet.messages.effects import Effect, Spawn
from tercet.node_agent.imaging import Imaging


class Births:
    """Wishes for executors, at most as many as the cluster manager has; `image` is the key of the
    image that all of them need, or empty where every host makes its own.
    """

    def __init__(self, image: str, imaging: Imaging) -> None:
        self._image = image
        self._imaging = imaging
        self._waiting: list[Spawn] = []
        self._due: list[tuple[Spawn, str]] = []

    def wish(self, spawn: Spawn, now: int, out: list[Effect]) -> None:
        """Take a wish; `due` gives it back when it can be carried out, perhaps at once."""
        if not self._image or self._imaging.held(self._image):
            self._due.append((spawn, ""))
            return
        self._waiting.append(spawn)
        self._imaging.want(self._image, now, out)

    def waits(self, executor: ExecutorId) -> bool:
        """Whether an executor waits for its image, which has a patience of its own."""
        return any(spawn.executor == executor for spawn in self._waiting)

    def cancel(self, executor: ExecutorId) -> bool:
        """Take back a wish that still waits; false: it does not."""
        waiting = [spawn for spawn in self._waiting if spawn.executor != executor]
        found = len(waiting) < len(self._waiting)
        self._waiting = waiting
        return found

    def due(self) -> list[tuple[Spawn, str]]:
        """Give the wishes to carry out now, and those that cannot be, with the reason."""
        for key, reason in self._imaging.finished:
            if key == self._image:
                self._due += [(spawn, reason) for spawn in self._waiting]
                self._waiting.clear()
        self._imaging.finished.clear()
        due, self._due = self._due, []
        return due
