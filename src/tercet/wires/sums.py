"""Checksums of parts and their fold, and copies that are summed in the same pass.

By the native module (`native/sums.h`) where it is built, else by `sums_plain`, which gives the same
values. Addresses are plain numbers: the caller keeps the memory mapped and the strip inside it.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from tercet.devices.cpu.native import native
from tercet.messages.kv import Strip
from tercet.wires import sums_plain
from tercet.wires.strips import units_of

U64 = NDArray[np.uint64]
FOLD_OF_NOTHING = sums_plain.FIRST
_NATIVE = native()


def sums(address: int, strip: Strip, part_bytes: int) -> U64:
    """One number for each part of `part_bytes`, in order; parts must not straddle units."""
    if _NATIVE is None:
        return sums_plain.sums(address, strip, part_bytes)
    found: U64 = _NATIVE.sums(_place(address, strip), units_of(strip), part_bytes)
    return found


def fold(values: U64, before: int = FOLD_OF_NOTHING) -> int:
    """One number for many, in their order; `before` is the fold of those before them."""
    if _NATIVE is None:
        return sums_plain.fold(values, before)
    return int(_NATIVE.fold(values, before))


def fold_of(address: int, strip: Strip, part_bytes: int) -> int:
    """Of all parts of the strip: what a `Move` takes as its check."""
    return fold(sums(address, strip, part_bytes))


def gather(
    source: int,
    source_strip: Strip,
    target: int,
    target_strip: Strip,
    *,
    part_bytes: int,
    before: int = FOLD_OF_NOTHING,
) -> int:
    """Copy between two addresses; the fold of what was copied, after those `before`."""
    return _gather((source, source_strip), (target, target_strip), part_bytes, before)


def copy(source: int, source_strip: Strip, target: int, target_strip: Strip) -> None:
    """Copy between two addresses, with no sum of it."""
    _gather((source, source_strip), (target, target_strip), 0, None)


def acquire(address: int) -> int:
    """The word at this address; what its writer wrote before it is seen by what follows."""
    if _NATIVE is None:
        return ctypes.c_uint64.from_address(address).value
    return int(_NATIVE.acquire(address))


def _gather(
    source: tuple[int, Strip], target: tuple[int, Strip], part_bytes: int, before: int | None
) -> int:
    if _NATIVE is None:
        return sums_plain.gather(source, target, part_bytes, before)
    ends = _place(*source), units_of(source[1]), _place(*target), units_of(target[1])
    return int(_NATIVE.gather(*ends, part_bytes, before is not None, before or 0))


def _place(address: int, strip: Strip) -> tuple[int, int, int, int]:
    return address, strip.start, strip.stride, strip.length
