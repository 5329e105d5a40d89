"""Arithmetic of strips: where their bytes lie, and how they are cut so that several can carry them.

The bytes of a strip are numbered in the order of its units, 0 to size; source and target of a move
number the same bytes alike, however differently they lie.
"""

import ctypes
from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import InvariantBroken
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import WireFailure

U32 = NDArray[np.uint32]
I32 = NDArray[np.int32]
Piece = tuple[int, int]
"""Bytes [offset, offset + length) of a memory."""
_STRIDE_END = 1 << 62
"""A unit beyond it lies in no memory, and native code counts no further."""


def units_of(strip: Strip) -> I32:
    return np.frombuffer(strip.units, "<i4")


def lives_of(strip: Strip) -> U32:
    return np.frombuffer(strip.lives, "<u4")


def check_parts(move: Move) -> None:
    """No part straddles units of the target, which is ours, or of the source, which others name:
    GONE where that does not fit.
    """
    source, target, part = move.source, move.target, move.part_bytes
    if part <= 0 or target.length % part:
        raise InvariantBroken(f"parts of {part} bytes straddle units of {target.length}")
    if source.size != target.size or source.length % part:
        sentence = f"{source.size} bytes in units of {source.length} do not fit {target.size}"
        raise WireFailure(MoveEnd.GONE, sentence)


def inside(strip: Strip, size: int) -> None:
    """GONE unless all bytes lie in a memory of this size: whoever asks may be wrong."""
    shaped = 0 <= strip.start <= size and 0 < strip.length <= size
    shaped = shaped and 0 <= strip.stride < _STRIDE_END
    shaped = shaped and len(strip.units) % 4 == 0 and len(strip.lives) in {0, len(strip.units)}
    if shaped and strip.units:
        units = memoryview(strip.units).cast("i")  # a list of a few: NumPy takes longer
        first, last = (units[0], units[0]) if len(units) == 1 else (min(units), max(units))
        shaped = first >= 0 and strip.start + last * strip.stride + strip.length <= size
    if not shaped:
        raise WireFailure(MoveEnd.GONE, f"a strip outside the {size} bytes of {strip.memory}")


def pieces(strip: Strip, begin: int, end: int) -> list[Piece]:
    """Where bytes [begin, end) of the strip lie; neighbours are joined."""
    found: list[Piece] = []
    if begin >= end:
        return found
    length, units = strip.length, units_of(strip)
    first, last = begin // length, (end - 1) // length
    starts = (strip.start + units[first : last + 1].astype(np.int64) * strip.stride).tolist()
    for number, start in enumerate(starts, first):
        low = max(begin - number * length, 0)
        high = min(end - number * length, length)
        if found and sum(found[-1]) == start + low:
            found[-1] = (found[-1][0], found[-1][1] + high - low)
        else:
            found.append((start + low, high - low))
    return found


def stripes(strip: Strip, size: int, part_bytes: int) -> list[tuple[int, Strip]]:
    """The strip cut into strips of about `size` bytes, each with the number of its first byte; no
    part is cut.
    """
    if strip.size <= size:
        return [(0, strip)]
    return list(cut(strip, repeat(size), part_bytes))


def cut(strip: Strip, sizes: Iterable[int], part_bytes: int) -> Iterator[tuple[int, Strip]]:
    """As `stripes`, but of these sizes, one after another; there must be enough of them."""
    at, total, length = 0, strip.size, strip.length
    for size in sizes:
        if at >= total:
            return
        number, low = divmod(at, length)
        if low or length > size:
            step = min(max(size // part_bytes, 1) * part_bytes, length - low)
            yield at, _within(strip, number, low, step)
        else:
            step = size // length * length
            yield at, _run(strip, number, number + step // length)
        at += step


def _within(strip: Strip, number: int, low: int, length: int) -> Strip:
    one = _run(strip, number, number + 1)
    return Strip(one.memory, one.start + low, one.stride, length, one.units, one.lives)


def _run(strip: Strip, first: int, last: int) -> Strip:
    units, lives = strip.units[4 * first : 4 * last], strip.lives[4 * first : 4 * last]
    return Strip(strip.memory, strip.start, strip.stride, strip.length, units, lives)


def view_at(address: int, size: int) -> memoryview:
    """Mapped memory as bytes; the caller keeps it mapped."""
    return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")
