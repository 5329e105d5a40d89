"""Rounding to what formats can say: bfloat16, 8-bit integers with a scale, blocks of GGUF."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

INT8_MAX = 127
_ON_GRID = 1e-4
"""Distance from an integer, in steps, up to which a value is taken to lie on a grid: rounding of
scale and product leave 127 x 2^-22 at most."""


def to_bfloat16(values: F32) -> F32:
    """The nearest numbers of 8 significant bits, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(values), values, rounded)


def symmetric8(values: F32) -> tuple[F32, F32]:
    """Integers in -127..127 (as float32) and scales [..., 1] of values over their last axis.

    Scale = largest magnitude / 127, integer = value / scale rounded to nearest, ties to even. A
    row of zeros, or of numbers so small that their scale vanishes, has the scale 0.
    """
    scale = np.abs(values).max(axis=-1, keepdims=True, initial=0.0) / np.float32(INT8_MAX)
    return codes8(values, scale), scale


def codes8(values: F32, scale: F32) -> F32:
    """The integers, as float32, that stand for the values under given scales."""
    safe = np.where(scale > 0, scale, np.float32(np.inf))
    codes = np.rint(values / safe)
    return np.clip(codes, -INT8_MAX, INT8_MAX, out=codes)


def grid8(values: F32) -> tuple[F32, F32]:
    """Integers (as float32) and scales of rows [N, K] that are integers times a scale each.

    Finds the scale also where a row's largest integer is not 127, as calibrated checkpoints have
    it. A row that lies on no such grid is rounded as `symmetric8` does.
    """
    codes, scale = symmetric8(values)
    open_rows = np.flatnonzero(~_fits(values, codes, scale))
    for largest in (128, *range(INT8_MAX - 1, 0, -1)):
        if not len(open_rows):
            break
        rows = values[open_rows]
        tried = np.abs(rows).max(axis=-1, keepdims=True) / np.float32(largest)
        found = np.rint(rows / np.where(tried > 0, tried, np.float32(np.inf)))
        fits = _fits(rows, found, tried)
        codes[open_rows[fits]], scale[open_rows[fits]] = found[fits], tried[fits]
        open_rows = open_rows[~fits]
    return codes, scale


def to_q4_1(values: F32) -> F32:
    """Numbers of blocks of 32 along the last axis as Q4_1 holds them: d q + m, q of 0 to 15, d and
    m in float16 (`quantize_row_q4_1_ref` of llama.cpp).
    """
    blocks = values.reshape(-1, 32)
    low, high = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
    step = (high - low) / np.float32(15)
    codes = np.trunc((blocks - low) * _inverse(step) + np.float32(0.5))
    np.clip(codes, 0, 15, out=codes)
    held: F32 = codes * _half(step) + _half(low)
    return held.reshape(values.shape)


def to_q8_0(values: F32) -> F32:
    """Numbers of blocks of 32 along the last axis as Q8_0 holds them: d q, d in float16, ties away
    from zero (`quantize_row_q8_0_ref` of llama.cpp).
    """
    blocks = values.reshape(-1, 32)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(INT8_MAX)
    scaled = blocks * _inverse(step)
    codes = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)
    held: F32 = codes * _half(step)
    return held.reshape(values.shape)


def _inverse(step: F32) -> F32:
    """1 / step, 0 for a step of 0."""
    return np.where(step == 0, np.float32(0), np.float32(1) / np.where(step == 0, 1, step))


def _half(values: F32) -> F32:
    """Rounded to float16, as float32."""
    return values.astype(np.float16).astype(np.float32)


def _fits(values: F32, codes: F32, scale: F32) -> NDArray[np.bool_]:
    """[N] rows whose values are their integers times their scale."""
    return np.asarray((np.abs(codes * scale - values) <= _ON_GRID * scale).all(axis=-1))
