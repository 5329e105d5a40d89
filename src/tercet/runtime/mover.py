"""Carries out moves and sums beside the event loop, by the wire that reaches the source.

    Move, Sum (loop) --> queue --> threads: wire.carry, sums --> Moved, Summed (loop)

Moves that wait for a layer of the source's step wait in threads of their own, and so do those to
and from a disk, which may be slow or hang: they must not hold up the others.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tercet.messages.effects import Move, Sum
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.runtime.supervise import OrStop
from tercet.wires.contract import Plane, Wire, WireFailure
from tercet.wires.fences import begin_lives
from tercet.wires.regions import Regions
from tercet.wires.sums import fold_of

MoverEvent = Moved | Summed
THREADS = 2
"""Copies at a time: more only take turns at the memory."""
WAITING_THREADS = 4
DISK_THREADS = 4
"""Enough for a disk to be busy while what it gave is summed."""
QUEUE_MAX = 65_536
"""Moves and sums that wait; one more has failed at once (I6)."""


class Mover:
    """One for a process; `wires` in the order of preference."""

    def __init__(
        self,
        regions: Regions,
        wires: Sequence[Wire],
        deliver: Callable[[MoverEvent], None],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._regions = regions
        self._wires = wires
        self._deliver = deliver
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mover")
        self._waiting = ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="layers")
        self._disk: ThreadPoolExecutor | None = None
        if any(wire.plane is Plane.STORAGE for wire in wires):
            self._disk = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self._num_queued = 0

    def move(self, effect: Move) -> None:
        """`Moved` follows, in the loop."""
        if self._num_queued >= QUEUE_MAX:
            late = Moved(ticket=effect.ticket, end=MoveEnd.LATE)
            self._loop.call_soon(self._deliver, late)
            return
        self._num_queued += 1
        self._threads_for(effect).submit(self._run, lambda: self._carry(effect))

    def _threads_for(self, move: Move) -> ThreadPoolExecutor:
        if move.step:
            return self._waiting
        wire = self._wire_of(move) if self._disk is not None else None
        if self._disk is not None and wire is not None and wire.plane is Plane.STORAGE:
            return self._disk
        return self._threads

    def _wire_of(self, move: Move) -> Wire | None:
        return next((one for one in self._wires if one.reaches(move)), None)

    def sum(self, effect: Sum) -> None:
        """`Summed` follows, in the loop."""
        self._num_queued += 1
        self._threads.submit(self._run, lambda: self._sum(effect))

    def _run(self, work: Callable[[], MoverEvent]) -> None:
        with OrStop(lambda: "a move broke down"):
            event = work()
        self._loop.call_soon_threadsafe(self._done, event)

    def _done(self, event: MoverEvent) -> None:
        self._num_queued -= 1
        self._deliver(event)

    def _carry(self, move: Move) -> Moved:
        ticket = move.ticket
        if move.deadline and time.monotonic_ns() >= move.deadline:
            return Moved(ticket=ticket, end=MoveEnd.LATE)
        wire = self._wire_of(move)
        if wire is None:
            return Moved(ticket=ticket, end=MoveEnd.GONE)
        try:
            if move.target.lives:  # a disk has none
                with self._regions.hold(move.target.memory) as target:
                    begin_lives(target, move.target)
            done = wire.carry(move)
        except WireFailure as failure:
            return Moved(ticket=ticket, end=failure.end, wire=wire.name)
        return Moved(
            ticket=ticket,
            end=MoveEnd.DONE,
            size=done.size,
            duration_ns=done.duration_ns,
            wire=wire.name,
        )

    def _sum(self, effect: Sum) -> Summed:
        checks = []
        for strip in effect.sources:
            with self._regions.hold(strip.memory) as region:
                checks.append(fold_of(region.address, strip, effect.part_bytes))
        return Summed(ticket=effect.ticket, checks=tuple(checks))
