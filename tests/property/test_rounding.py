"""Rounding to formats over any shapes and numbers."""

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tercet.program.formats import Format
from tercet.program.recipes import quantized
from tercet.program.rounding import grid8, symmetric8, to_bfloat16

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
anything = st.floats(width=32)
matrices = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=finite)


@given(arrays(np.float32, array_shapes(), elements=anything))
def test_bfloat16_is_that_of_ml_dtypes(values: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(to_bfloat16(values), expected)


@given(matrices)
def test_integers_are_within_half_a_step_of_their_numbers(values: np.ndarray) -> None:
    codes, scale = symmetric8(values)
    assert (np.abs(codes) <= 127).all()
    np.testing.assert_array_equal(codes, np.rint(codes))
    assert np.isfinite(scale).all()
    off = np.abs(codes.astype(float) * scale - values)
    # Below the smallest normal number a scale has few bits, and steps are coarse.
    assert (off <= 0.5001 * scale + 127 * 2.0**-149).all()


@given(matrices)
def test_rounding_twice_is_rounding_once(values: np.ndarray) -> None:
    once = quantized(values, Format.BF16)
    np.testing.assert_array_equal(quantized(once, Format.BF16), once)


@settings(max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(2, 40),
    st.integers(1, 128),
    st.floats(2.0**-90, 2.0**90, width=32),
    st.integers(0, 1000),
)
def test_numbers_on_a_grid_are_found_on_a_grid(
    rows: int, columns: int, largest: int, scale: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    codes = chance.integers(-largest, min(largest, 127) + 1, (rows, columns)).astype(np.float32)
    values = codes * np.float32(scale)
    found, scales = grid8(values)
    assert (np.abs(found) <= 128).all()
    np.testing.assert_allclose(found * scales, values, rtol=1e-6)
