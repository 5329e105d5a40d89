"""The searches for scales: never worse than plain rounding, and right where the answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.program.rounding import codes8
from tercet.quantization.rounding import compensated, inverse_factor, plain_scales
from tercet.quantization.sites import Absorber, Site
from tercet.quantization.smoothing import OutputError, find_scale, round8


def site(columns: int, entry: np.ndarray | None = None) -> Site:
    where = np.arange(columns) if entry is None else entry
    return Site(name="x", columns=columns, readers=("w",), absorber=Absorber(("norm",), where))


def outliers(rows: int, columns: int, seed: int) -> np.ndarray:
    """Inputs one channel of which is far larger than all others."""
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    x[:, seed % columns] *= 300
    return x


def test_an_outlying_channel_is_suppressed() -> None:
    x = outliers(64, 48, 5)
    matrix = np.random.default_rng(2).standard_normal((32, 48)).astype(np.float32)
    matrix[:, 5] *= 0.01
    scale = find_scale(site(48), x, [matrix])
    error = OutputError(x, [matrix])
    assert scale[5] > 10 * np.median(scale)
    assert error.of(scale) < error.of() / 20


def test_channels_of_one_entry_have_one_scale() -> None:
    x = outliers(64, 48, 5)
    entry = np.tile(np.arange(12), 4)
    matrix = np.random.default_rng(2).standard_normal((32, 48)).astype(np.float32)
    scale = find_scale(site(48, entry), x, [matrix])
    assert (scale != 1).any()
    np.testing.assert_array_equal(scale.reshape(4, 12), np.tile(scale[:12], (4, 1)))


def test_without_something_to_take_it_up_there_is_no_scale() -> None:
    alone = Site(name="x", columns=48, readers=("w",), absorber=None)
    matrix = np.ones((3, 48), np.float32)
    np.testing.assert_array_equal(find_scale(alone, outliers(9, 48, 5), [matrix]), np.ones(48))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 23),
    outputs=st.integers(1, 7),
    seed=st.integers(0, 10_000),
    large=st.sampled_from([1e-20, 1.0, 1e15]),
    empty=st.booleans(),
)
def test_a_search_never_loses(
    rows: int, columns: int, outputs: int, seed: int, large: float, empty: bool
) -> None:
    chance = np.random.default_rng(seed)
    x = (chance.standard_normal((rows, columns)) * large).astype(np.float32)
    matrix = chance.standard_normal((outputs, columns)).astype(np.float32)
    if empty:
        x[:, seed % columns] = 0
        matrix[seed % outputs] = 0
        matrix[:, (seed + 1) % columns] = 0
    scale = find_scale(site(columns), x, [matrix])
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    error = OutputError(x, [matrix])
    assert error.of(scale) <= error.of()


def lost(matrix: np.ndarray, codes: np.ndarray, scales: np.ndarray, x: np.ndarray) -> np.ndarray:
    """[N] squared output error of each row."""
    return np.square(x.astype(float) @ (codes * scales - matrix).astype(float).T).sum(axis=0)


@pytest.mark.parametrize("columns", [7, 128, 129, 300])
def test_later_columns_take_up_errors(columns: int) -> None:
    chance = np.random.default_rng(columns)
    mixed = chance.standard_normal((columns, columns)) * np.exp(-np.arange(columns) / 5)
    x = (chance.standard_normal((900, columns)) @ mixed.T).astype(np.float32)
    matrix = chance.standard_normal((20, columns)).astype(np.float32)
    scales = 8 * plain_scales(matrix)  # coarse: 4 to 5 bits
    codes = compensated(matrix, scales, inverse_factor(x.T @ x / np.float32(900)))
    assert (np.abs(codes) <= 127).all()
    np.testing.assert_array_equal(codes, np.rint(codes))
    plain = lost(matrix, codes8(matrix, scales), scales, x).sum()
    assert lost(matrix, codes, scales, x).sum() < plain / 1.3


def test_independent_inputs_leave_nothing_to_compensate() -> None:
    matrix = np.random.default_rng(3).standard_normal((5, 40)).astype(np.float32)
    scales = plain_scales(matrix)
    codes = compensated(matrix, scales, inverse_factor(np.eye(40, dtype=np.float32)))
    np.testing.assert_array_equal(codes, codes8(matrix, scales))


def test_inputs_that_never_were_are_no_obstacle() -> None:
    matrix = np.random.default_rng(3).standard_normal((5, 40)).astype(np.float32)
    matrix[2] = 0
    scales = plain_scales(matrix)
    codes = compensated(matrix, scales, inverse_factor(np.zeros((40, 40), np.float32)))
    np.testing.assert_array_equal(codes, codes8(matrix, scales))


@pytest.mark.parametrize("value", [0.0, 1e-45, 3e38])
def test_extreme_rows_stay_numbers(value: float) -> None:
    rows = np.full((2, 5), value, np.float32)
    assert np.isfinite(round8(rows)).all()
