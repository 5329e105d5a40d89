"""Carries out moves and sums beside the event loop, by the wire that reaches the source.

    Move, Sum (loop) --> a lane of its threads: wire.carry, sums --> Moved, Summed (loop)

Copies within the host and sums have threads of their own, and so has a disk. What waits for others
does so in lanes: two moves at a time from one host, four that wait for the layers of one lender.
A host that is frozen, a disk that hangs and a step that never comes hold up nobody else.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from tercet.messages.effects import Move, Sum
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.runtime.lanes import Lanes
from tercet.wires.contract import Plane, Wire, WireFailure
from tercet.wires.fences import begin_lives
from tercet.wires.regions import Regions
from tercet.wires.sums import fold_of

MoverEvent = Moved | Summed
THREADS = 2
"""Copies within the host at a time: more only take turns at the memory."""
DISK_THREADS = 4
"""Enough for a disk to be busy while what it gave is summed."""
FAR_THREADS = 48
"""For all that waits for others."""
PER_HOST = 2
"""Moves at a time from one host: one on its way while the next is asked for."""
PER_LENDER = 4
"""Moves at a time that wait for the layers of one lender."""
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
        self._near = Lanes(THREADS, self._done, loop=loop, name="mover")
        self._far = Lanes(FAR_THREADS, self._done, loop=loop, name="far")
        self._disk = Lanes(DISK_THREADS, self._done, loop=loop, name="disk")
        self._num_queued = 0

    def move(self, effect: Move) -> None:
        """`Moved` follows, in the loop."""

        def late() -> Moved:
            return Moved(ticket=effect.ticket, end=MoveEnd.LATE)

        if self._num_queued >= QUEUE_MAX:
            self._loop.call_soon(self._deliver, late())
            return
        self._num_queued += 1
        lanes, lane, width = self._lane_for(effect)
        lanes.submit(
            lane, lambda: self._carry(effect), width=width, late=late, deadline=effect.deadline
        )

    def _lane_for(self, move: Move) -> tuple[Lanes[MoverEvent], str, int]:
        """Give whose threads carry a move, its lane and how many of the lane run at a time."""
        if move.step:
            return self._far, move.source.memory, PER_LENDER
        wire = self._wire_of(move)
        plane = Plane.SCALE_UP if wire is None else wire.plane
        if plane is Plane.STORAGE:
            return self._disk, "disk", DISK_THREADS
        if plane is Plane.SCALE_OUT:
            return self._far, move.source.memory.partition("/")[0], PER_HOST
        return self._near, "near", THREADS

    def _wire_of(self, move: Move) -> Wire | None:
        return next((one for one in self._wires if one.reaches(move)), None)

    def sum(self, effect: Sum) -> None:
        """`Summed` follows, in the loop."""
        self._num_queued += 1

        def work() -> Summed:
            return self._sum(effect)

        self._near.submit("near", work, width=THREADS, late=work)

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
