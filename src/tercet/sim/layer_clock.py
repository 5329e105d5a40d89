"""How far a simulated executor's device is: which layers of which step are there now.

step n      |  layer 1  |  layer 2  |  layer 3  |     a step's time, in equal parts
tags         `----------'-----------'-----------'-- written as their layer is done
"""

from collections.abc import Callable

import numpy as np

from tercet.devices.contract import I64, U64
from tercet.sim.memories import Arena
from tercet.sim.timeline import Timeline

Waiter = tuple[int, int, Callable[[], None]]


class LayerClock:
    """Writes what steps compute into the arena at the time of each layer, and wakes who waits.

    `stopped` says for how long the process is stopped from now; 0: it runs.
    """

    def __init__(self, timeline: Timeline, arena: Arena, stopped: Callable[[], int]) -> None:
        self._timeline = timeline
        self._arena = arena
        self._stopped = stopped
        self._step = 0
        self._began = 0
        self._duration = 0
        self._done = 0
        """Layers of the running step that are written."""
        self._running = False
        self._dead = False
        self._blocks: I64 = np.zeros(0, np.int64)
        self._tags: U64 = np.zeros((0, arena.layers), np.uint64)
        self._waiters: list[Waiter] = []

    def begin(self, step: int, duration: int, blocks: I64, tags: U64) -> None:
        """A step runs for so long and gives these blocks these [blocks, layers] tags."""
        self._step, self._began, self._duration = step, self._timeline.now, duration
        self._blocks, self._tags = blocks, tags
        self._done = 0
        self._running = True
        for waiter in self._waiters:
            self._look_when_due(waiter)

    def end(self) -> None:
        """All layers of the running step are there."""
        self._write(self._arena.layers)
        self._running = False
        self._wake()

    def stop(self) -> None:
        """The process has ended: what is not written never will be."""
        self.catch_up()
        self._dead = True
        self._waiters.clear()

    def catch_up(self) -> None:
        """Write the layers that are done by now. While the process is stopped none is."""
        if self._running and not self._dead and not self._stopped():
            passed = self._timeline.now - self._began
            layers = self._arena.layers
            due = passed * layers // self._duration if self._duration else layers
            self._write(min(due, layers))

    def when(self, step: int, layer: int, then: Callable[[], None]) -> None:
        """Call once this layer (from 1) of this step is there."""
        if self._passed(step, layer):
            then()
        elif not self._dead:
            waiter = (step, layer, then)
            self._waiters.append(waiter)
            self._look_when_due(waiter)

    def _passed(self, step: int, layer: int) -> bool:
        self.catch_up()
        if step < self._step or (step == self._step and not self._running):
            return True
        return step == self._step and layer <= self._done

    def _look_when_due(self, waiter: Waiter) -> None:
        step, layer, _ = waiter
        if self._running and step == self._step:
            at = self._began + -(-self._duration * layer // self._arena.layers)
            self._timeline.at(at, self._wake)

    def _wake(self) -> None:
        if self._stopped():
            self._timeline.after(self._stopped(), self._wake)
            return
        due = [one for one in self._waiters if self._passed(one[0], one[1])]
        self._waiters = [one for one in self._waiters if one not in due]
        for _, _, then in due:
            then()

    def _write(self, layers: int) -> None:
        if layers > self._done:
            cells = self._arena.tags[1:].reshape(self._arena.num_blocks, self._arena.layers)
            part = slice(self._done, layers)
            cells[self._blocks, part] = self._tags[:, part]
            self._done = layers
