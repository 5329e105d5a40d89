"""The wire between mapped memory and a disk of this host: the storage plane.

Sums are made of the bytes on their way to the disk's buffers and from there, so a broken sector is
found where a value is used. A move's label is written once its bytes are there.
"""

import math
import time
from collections.abc import Callable, Iterator

from tercet.base.errors import must
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Done, Plane, Region, WireFailure
from tercet.wires.fences import check_lives, until_of
from tercet.wires.regions import Regions
from tercet.wires.slab import BUFFER_BYTES, UNIT_BYTES, Slab
from tercet.wires.strips import check_parts, inside, pieces
from tercet.wires.sums import FOLD_OF_NOTHING, copy, fold_of, gather

_ONE = b"\0\0\0\0"


class DiskWire:
    """`memory` is the slab's name; `label_at` gives the byte of the slab where a label belongs.

    Extents of moves begin at multiples of `slab.UNIT_BYTES`, and what follows one up to the next
    such multiple is its own.
    """

    name = "disk"
    plane = Plane.STORAGE

    def __init__(
        self,
        regions: Regions,
        memory: str,
        slab: Slab,
        label_at: Callable[[bytes], int] | None = None,
    ) -> None:
        self._regions = regions
        self._memory = memory
        self._slab = slab
        self._label_at = label_at
        self._closed = False

    def reaches(self, move: Move) -> bool:
        """Whether it is between the disk and a memory that is mapped here."""
        source, target = move.source.memory, move.target.memory
        if source == self._memory:
            return target in self._regions
        return target == self._memory and source in self._regions

    def carry(self, move: Move) -> Done:
        """Read or write extent by extent, by the calling thread."""
        check_parts(move)
        started = time.monotonic_ns()
        if move.source.memory == self._memory:
            with self._regions.hold(move.target.memory) as region:
                fold = self._read(move, region)
        else:
            with self._regions.hold(move.source.memory) as region:
                fold = self._write(move, region)
        duration = time.monotonic_ns() - started
        return Done(size=move.source.size, duration_ns=duration, fold=fold)

    def close(self) -> None:
        """Moves under way fail as GONE after the extent that they are at."""
        self._closed = True

    def _read(self, move: Move, region: Region) -> int:
        must(region.writable, f"a move into {region.memory}, which is not ours")
        step, total = _step(move), FOLD_OF_NOTHING
        for address, count, at in self._extents(move, move.source, move.target, region):
            with self._slab.buffer() as buffer:
                self._slab.read(buffer, count, at)
                total = _over(buffer.address, address, count, part_bytes=step, before=total)
        if not step:
            total = fold_of(region.address, move.target, move.part_bytes)
        _verify(move, total)
        return total

    def _write(self, move: Move, region: Region) -> int:
        check_lives(region, move.source)
        inside(move.source, region.size)
        step, total, left = _step(move), FOLD_OF_NOTHING, move.source.size
        if not step:
            total = fold_of(region.address, move.source, move.part_bytes)
            _verify(move, total)
        for address, count, at in self._extents(move, move.target, move.source, region):
            with self._slab.buffer() as buffer:
                total = _over(address, buffer.address, count, part_bytes=step, before=total)
                left -= count
                if not left:
                    _verify(move, total)
                self._slab.write(buffer, count, at)
        check_lives(region, move.source)
        if move.label and self._label_at is not None:
            self._slab.note(move.label, self._label_at(move.label))
        return total

    def _extents(
        self, move: Move, disk: Strip, memory: Strip, region: Region
    ) -> Iterator[tuple[int, int, int]]:
        """Address, bytes and place on the disk, of what fits a buffer at a time."""
        inside(disk, self._slab.size)
        inside(memory, region.size)
        until, done = until_of(move.deadline), 0
        most = _most(move.part_bytes) or BUFFER_BYTES
        for at, length in pieces(disk, 0, disk.size):
            for begin in range(0, length, most):
                if self._closed:
                    raise WireFailure(MoveEnd.GONE, "the wire is closed")
                if time.monotonic_ns() > until:
                    raise WireFailure(MoveEnd.LATE, f"{self._slab.path} is slow")
                count = min(most, length - begin)
                places = pieces(memory, done, done + count)
                must(len(places) == 1, f"an extent for {len(places)} pieces of {region.memory}")
                yield region.address + places[0][0], count, at + begin
                done += count


def _most(part_bytes: int) -> int:
    """Whole parts and whole units of the disk that fit a buffer; 0: none do."""
    both = math.lcm(part_bytes, UNIT_BYTES)
    return BUFFER_BYTES // both * both


def _step(move: Move) -> int:
    """Bytes of the parts that are summed while they are copied; 0: not while they are."""
    fits = move.source.size <= BUFFER_BYTES or _most(move.part_bytes)
    return move.part_bytes if fits else 0


def _over(source: int, target: int, count: int, *, part_bytes: int, before: int) -> int:
    """Copy, and carry on the fold of what was copied (unless there are no parts)."""
    strip = Strip("", 0, 0, count, _ONE)
    if not part_bytes:
        copy(source, strip, target, strip)
        return before
    return gather(source, strip, target, strip, part_bytes=part_bytes, before=before)


def _verify(move: Move, total: int) -> None:
    if move.check is not None and total != move.check:
        raise WireFailure(MoveEnd.CORRUPT, f"{move.source.size} bytes of {move.source.memory}")
