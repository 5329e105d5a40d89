"""The wire within a host: a memory of another process that is mapped here is read where it lies."""

import time
from collections.abc import Callable

from tercet.base.errors import must
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Done, Plane, Region, WireFailure
from tercet.wires.fences import check_lives, until_of, wait_for_layer
from tercet.wires.regions import Regions
from tercet.wires.strips import check_parts, inside
from tercet.wires.sums import copy, gather

Copy = Callable[[tuple[int, Strip], tuple[int, Strip], int | None], int | None]
"""From, to, bytes of a part (None: no sum is wanted) -> the fold."""


def _copied(
    source: tuple[int, Strip], target: tuple[int, Strip], part_bytes: int | None
) -> int | None:
    if part_bytes is None:
        copy(*source, *target)
        return None
    return gather(*source, *target, part_bytes=part_bytes)


class SharedWire:
    """Between mapped memories. Where a move has no check, fences are all that is looked at."""

    name = "shared"
    plane = Plane.SCALE_UP

    def __init__(self, regions: Regions, copied: Copy = _copied) -> None:
        self._regions = regions
        self._copied = copied
        self._closed = False

    def reaches(self, move: Move) -> bool:
        """Whether both memories are mapped here."""
        return move.source.memory in self._regions and move.target.memory in self._regions

    def carry(self, move: Move) -> Done:
        """Copy and sum in one pass by the calling thread."""
        with (
            self._regions.hold(move.source.memory) as source,
            self._regions.hold(move.target.memory) as target,
        ):
            return self._carry(move, source, target)

    def close(self) -> None:
        """Nothing is carried any more; a copy under way takes milliseconds and ends well."""
        self._closed = True

    def _carry(self, move: Move, source: Region, target: Region) -> Done:
        must(target.writable, f"a move into {target.memory}, which is not ours")
        check_parts(move)
        inside(move.source, source.size)
        inside(move.target, target.size)
        point = (move.step, move.layer)
        wait_for_layer(source, point, until_of(move.deadline), lambda: self._over(source))
        if self._closed:
            raise WireFailure(MoveEnd.GONE, "the wire is closed")
        started = time.monotonic_ns()
        check_lives(source, move.source)
        fold = self._copied(
            (source.address, move.source),
            (target.address, move.target),
            None if move.check is None else move.part_bytes,
        )
        check_lives(source, move.source)
        if move.check is not None and fold != move.check:
            raise WireFailure(MoveEnd.CORRUPT, f"{move.source.size} bytes of {source.memory}")
        duration = time.monotonic_ns() - started
        return Done(size=move.source.size, duration_ns=duration, fold=fold)

    def _over(self, source: Region) -> bool:
        return self._closed or not self._regions.stands(source)
