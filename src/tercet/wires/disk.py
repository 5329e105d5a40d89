"""The wire between mapped memory and a disk of this host: the storage plane.

Sums are made over the bytes in memory, before they go to the disk and after they came from it, so a
broken sector is found where a value is used. A move's label is written once its bytes are there.
"""

import time
from collections.abc import Callable

from tercet.base.errors import must
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Done, Plane, Region, WireFailure
from tercet.wires.fences import check_lives, until_of
from tercet.wires.regions import Regions
from tercet.wires.slab import BUFFER_BYTES, Slab
from tercet.wires.strips import check_parts, inside, pieces
from tercet.wires.sums import fold_of


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
        self._each(move, (move.source, move.target), region, self._slab.read)
        return self._verified(move, region, move.target)

    def _write(self, move: Move, region: Region) -> int:
        check_lives(region, move.source)
        inside(move.source, region.size)
        fold = self._verified(move, region, move.source)
        self._each(move, (move.target, move.source), region, self._slab.write)
        check_lives(region, move.source)
        if move.label and self._label_at is not None:
            self._slab.note(move.label, self._label_at(move.label))
        return fold

    def _verified(self, move: Move, region: Region, strip: Strip) -> int:
        fold = fold_of(region.address, strip, move.part_bytes)
        if move.check is not None and fold != move.check:
            raise WireFailure(MoveEnd.CORRUPT, f"{strip.size} bytes of {move.source.memory}")
        return fold

    def _each(
        self,
        move: Move,
        strips: tuple[Strip, Strip],
        region: Region,
        call: Callable[[int, int, int], None],
    ) -> None:
        """Call with address, bytes and place on the disk, for each piece of memory."""
        disk, memory = strips
        inside(disk, self._slab.size)
        inside(memory, region.size)
        until, done = until_of(move.deadline), 0
        for at, length in pieces(disk, 0, disk.size):
            for begin in range(0, length, BUFFER_BYTES):
                if self._closed:
                    raise WireFailure(MoveEnd.GONE, "the wire is closed")
                if time.monotonic_ns() > until:
                    raise WireFailure(MoveEnd.LATE, f"{self._slab.path} is slow")
                count = min(BUFFER_BYTES, length - begin)
                self._spread(region, pieces(memory, done, done + count), at + begin, call)
                done += count

    def _spread(
        self,
        region: Region,
        places: list[tuple[int, int]],
        at: int,
        call: Callable[[int, int, int], None],
    ) -> None:
        """One extent for one piece of memory: what lies in several is the caller's mistake."""
        must(len(places) == 1, f"an extent for {len(places)} pieces of {region.memory}")
        offset, length = places[0]
        call(region.address + offset, length, at)
