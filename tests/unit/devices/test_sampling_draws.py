"""Draws follow the filtered distribution exactly, alone or in company."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_cases import (
    naive_distribution,
    naive_scores,
    one_row,
    rows_of,
    unscored,
)

from tercet.devices.reference.sampling import sample

FILTERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
    {"top_p": 0.95, "temperature": 1.7},
]


def chi_square(observed, expected):
    """Pearson's statistic over cells of at least 5 expected, and its degrees of freedom."""
    large = expected >= 5.0
    cells = np.append(observed[large], observed[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum())
    cells, wanted = cells[wanted > 0], wanted[wanted > 0]
    return float(((cells - wanted) ** 2 / wanted).sum()), len(wanted) - 1


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("vocab", [50, 1000])
def test_frequencies_follow_the_filtered_distribution(filters, vocab):
    draws = 8192
    logits = np.random.default_rng(1).standard_normal(vocab).astype(np.float32) * 2
    rows = rows_of(draws, **{"temperature": 1.0, "position": np.arange(draws)} | filters)
    many = np.tile(logits, (draws, 1))
    tokens = sample(many, rows, unscored(draws)).tokens
    expected = naive_distribution(many[:1], rows, 0) * draws
    observed = np.bincount(tokens, minlength=vocab)
    assert not observed[expected == 0].any(), "a token that the filters left out was drawn"
    statistic, freedom = chi_square(observed, expected)
    # Four standard deviations of the chi-square distribution, with room for its skew.
    assert statistic <= freedom + 4.5 * np.sqrt(2 * freedom) + 6


@pytest.mark.parametrize("varied", ["seed", "choice", "position"])
def test_neighbouring_keys_draw_independently(varied):
    """vllm#14280: equal choices under one seed are what a shared generator gives."""
    draws, vocab = 8192, 8
    rows = rows_of(draws, temperature=1.0, **{varied: np.arange(draws)})
    tokens = sample(np.zeros((draws, vocab), np.float32), rows, unscored(draws)).tokens
    pairs = np.bincount(tokens[:-1] * vocab + tokens[1:], minlength=vocab * vocab)
    statistic, freedom = chi_square(pairs, np.full(vocab * vocab, (draws - 1) / vocab**2))
    assert statistic <= freedom + 4.5 * np.sqrt(2 * freedom) + 6


def test_a_row_draws_the_same_alone_and_in_batches():
    rng = np.random.default_rng(3)
    vocab, num_rows = 3000, 32
    logits = (rng.standard_normal((num_rows, vocab)) * 3).astype(np.float32)
    rows = rows_of(
        num_rows,
        temperature=rng.choice([0.0, 0.3, 1.0, 1.8], num_rows),
        top_k=rng.choice([0, 1, 7, 300, 5000], num_rows),
        top_p=rng.choice([0.0, 0.5, 0.95, 1.0], num_rows),
        min_p=rng.choice([0.0, 0.1], num_rows),
        seed=rng.integers(0, 2**63, num_rows),
        position=rng.integers(0, 4000, num_rows),
        repetition=1.2,
        presence=0.5,
        history=[{int(i): int(i) % 3 for i in rng.integers(0, vocab, 20)} for _ in range(num_rows)],
        bias=[{int(rng.integers(vocab)): 3.0} for _ in range(num_rows)],
    )
    together = sample(logits, rows, unscored(num_rows))
    for row in range(num_rows):
        alone = sample(logits[row : row + 1], one_row(rows, row), unscored(1))
        assert alone.tokens[0] == together.tokens[row]
        assert alone.margins[0] == together.margins[row]


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    vocab=st.integers(1, 400),
    temperature=st.sampled_from([0.0, 1e-6, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 100, 10**6]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_only_what_the_filters_leave_can_come_out(
    data, vocab, temperature, top_k, top_p, min_p, spread
):
    """vllm PR#44744: never an id outside the vocabulary, whatever its size."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    logits = (rng.standard_normal((3, vocab)) * spread).astype(np.float32)
    some = data.draw(st.lists(st.integers(0, vocab - 1), max_size=5, unique=True))
    rows = rows_of(
        3,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        position=[1, 2, 3],
        frequency=data.draw(st.sampled_from([0.0, 2.0])),
        repetition=data.draw(st.sampled_from([1.0, 1.5])),
        history=[dict.fromkeys(some, 2)] * 3,
        bias=[dict.fromkeys(some, data.draw(st.sampled_from([-100.0, 100.0])))] * 3,
    )
    before = logits.copy()
    got = sample(logits, rows, unscored(3))
    np.testing.assert_array_equal(logits, before)
    for row in range(3):
        scores = naive_scores(logits, rows, row)
        token = got.tokens[row]
        assert 0 <= token < vocab
        if temperature == 0.0:
            assert scores[token] >= scores.max() - 1e-4
        elif spread:  # ties of equal logits are cut by id; rounding could cut elsewhere
            chance = naive_distribution(logits, rows, row)[token]
            assert chance > 0.0 or np.sort(scores)[::-1][:2].ptp() < 1e-3
