"""The sums of `native/kernels/sums.cpp` in NumPy: the specification, and for machines without a
compiler.

32 lanes of 64 bits take the bytes of a part, 256 at a time, zeros after the last. A lane joins a
word to what it has, changes halves, and multiplies by an odd number; lanes begin differently, are
joined in order, and the length is joined first.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from tercet.messages.kv import Strip
from tercet.wires.strips import pieces

U64 = NDArray[np.uint64]
FACTOR = 0x9E3779B97F4A7C55
FIRST = 0xC2B2AE3D27D4EB4F
_ALL = (1 << 64) - 1
_LANES = 32
_STRIPE = 8 * _LANES
_HALF = np.uint64(32)


def sums(address: int, strip: Strip, part_bytes: int) -> U64:
    """One number for each part, all parts at once."""
    _fits(strip, part_bytes)
    count = strip.size // part_bytes if part_bytes else 0
    stripes = -(-part_bytes // _STRIPE) if count else 0
    padded = np.zeros((count, stripes * _STRIPE), np.uint8)
    if count:
        padded[:, :part_bytes] = _bytes(address, strip).reshape(count, part_bytes)
    words = padded.view("<u8").reshape(count, stripes, _LANES)
    lanes = np.tile(np.arange(1, _LANES + 1, dtype=np.uint64) * np.uint64(FIRST), (count, 1))
    for stripe in range(stripes):
        lanes = _mixed(lanes, words[:, stripe])
    quarters = lanes.reshape(count, 4, 8)
    joined = quarters[:, 0]
    for quarter in range(1, 4):
        joined = _mixed(joined, quarters[:, quarter])
    total = np.full(count, part_bytes * FACTOR & _ALL, np.uint64)
    for lane in range(8):
        total = _mixed(total, joined[:, lane])
    total = (total ^ (total >> np.uint64(29))) * np.uint64(FIRST)
    result: U64 = total ^ (total >> _HALF)
    return result


def fold(values: U64, before: int) -> int:
    """One number for many."""
    for value in values.tolist():
        joined = before ^ value
        before = (joined << 32 | joined >> 32) * FACTOR & _ALL
    return before


def gather(
    source: tuple[int, Strip], target: tuple[int, Strip], part_bytes: int, before: int | None
) -> int:
    """Copy; the fold of what was copied, after those `before`, or 0 where there is none."""
    if source[1].size != target[1].size:
        raise ValueError(f"{source[1].size} bytes do not fit {target[1].size}")
    if before is not None:
        _fits(source[1], part_bytes)
        _fits(target[1], part_bytes)
    data, at = _bytes(*source), 0
    for offset, length in pieces(target[1], 0, target[1].size):
        _view(target[0] + offset, length)[:] = data[at : at + length]
        at += length
    return 0 if before is None else fold(sums(*target, part_bytes), before)


def _mixed(lanes: U64, words: U64) -> U64:
    joined = lanes ^ words
    mixed: U64 = ((joined << _HALF) | (joined >> _HALF)) * np.uint64(FACTOR)
    return mixed


def _fits(strip: Strip, part_bytes: int) -> None:
    if strip.units and (part_bytes <= 0 or strip.length <= 0 or strip.length % part_bytes):
        raise ValueError(f"parts of {part_bytes} bytes straddle units of {strip.length}")


def _bytes(address: int, strip: Strip) -> NDArray[np.uint8]:
    """A copy of a strip's bytes."""
    all_pieces = pieces(strip, 0, strip.size)
    views = [_view(address + offset, length) for offset, length in all_pieces]
    return np.concatenate([*views, np.empty(0, np.uint8)])


def _view(address: int, length: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))
