"""Edges of the sampler: bans, ties, huge and tiny values, log-probabilities, broken logits."""

import numpy as np
import pytest
from sampler_cases import naive_distribution, naive_scores, rows_of, unscored

from tercet.base.rand import mix
from tercet.devices.noise import bits_reaching, gumbel, mix64, noise_bits
from tercet.devices.reference.leading import leading
from tercet.devices.reference.sampling import LOGPROB_MIN, sample


def logits_of(*rows):
    return np.array(rows, np.float32)


def test_greedy_takes_the_best_and_tells_the_margin():
    got = sample(logits_of([1, 5, 4.5], [2, 2, 1]), rows_of(2), unscored(2))
    assert got.tokens.tolist() == [1, 0]
    assert got.margins.tolist() == [0.5, 0.0]


def test_margins_can_be_left_out():
    got = sample(logits_of([1, 5, 4.5]), rows_of(1), unscored(1), want_margins=False)
    assert got.tokens.tolist() == [1]
    assert got.margins.tolist() == [np.inf]


def test_logits_that_may_not_be_written_are_served():
    logits = logits_of([1, 5, 4.5])
    logits.flags.writeable = False
    assert sample(logits, rows_of(1), unscored(1)).margins.tolist() == [0.5]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_logits_name_their_row(temperature, value):
    logits = np.zeros((3, 10), np.float32)
    logits[2, 4] = value
    with pytest.raises(ValueError, match="row 2"):
        sample(logits, rows_of(3, temperature=temperature), unscored(3))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_everything_banned_takes_the_best_raw_logit(temperature):
    rows = rows_of(2, temperature=temperature, bias=[dict.fromkeys(range(4), -np.inf), {}])
    got = sample(logits_of([0, 3, 9, 1], [0, 30, 0, 0]), rows, unscored(2))
    assert got.tokens.tolist() == [2, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_minus_infinity_has_an_answer(temperature):
    rows = rows_of(1, temperature=temperature, num_logprobs=2)
    got = sample(np.full((1, 5), -np.inf, np.float32), rows, unscored(1))
    assert got.tokens.tolist() == [0]
    assert got.top_ids.tolist() == [[0, 1]]
    assert np.isfinite(got.logprobs).all()


def test_a_ban_holds_against_bias_and_penalties():
    rows = rows_of(
        1,
        bias=[{1: -np.inf, 2: 100.0}],
        history=[{1: 3}],
        repetition=1e-6,
        frequency=-2.0,
        presence=-2.0,
    )
    assert sample(logits_of([0, 50, -60, 1]), rows, unscored(1)).tokens.tolist() == [2]


def test_biases_of_one_id_given_twice_add_up():
    rows = rows_of(1)
    twice = type(rows)(
        **{name: getattr(rows, name) for name in rows.__slots__ if not name.startswith("bias")},
        bias_ids=np.array([2, 2], np.int32),
        bias_values=np.array([2.0, 2.0], np.float32),
        bias_ends=np.array([2], np.int32),
    )
    assert sample(logits_of([3, 0, 0]), twice, unscored(1)).tokens.tolist() == [2]


@pytest.mark.parametrize("extreme", [1e-30, 1e30])
@pytest.mark.parametrize("temperature", [0.0, 1e-38, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2, "min_p": 0.1}])
def test_extreme_penalties_never_give_nan(extreme, temperature, filters):
    rows = rows_of(
        2,
        temperature=temperature,
        repetition=extreme,
        frequency=1e30,
        presence=-1e30,
        history=[{0: 1, 1: 2}, {2: 0, 3: 5}],
        **filters,
    )
    with np.errstate(all="raise", under="ignore"):
        got = sample(logits_of([1, -2, 3, 0], [1, -2, 3, 0]), rows, unscored(2))
    assert not np.isnan(got.margins).any()
    assert ((got.tokens >= 0) & (got.tokens < 4)).all()


def test_penalties_equal_the_naive_ones():
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((20, 30)).astype(np.float32) * 3
    history = [{int(i): int(i) % 4 for i in rng.integers(0, 30, 12)} for _ in range(20)]
    rows = rows_of(20, repetition=1.3, presence=0.4, frequency=0.3, history=history)
    got = sample(logits, rows, unscored(20))
    naive = [naive_scores(logits, rows, row) for row in range(20)]
    assert got.tokens.tolist() == [int(scores.argmax()) for scores in naive]
    best = np.sort(np.array(naive), axis=1)
    np.testing.assert_allclose(got.margins, best[:, -1] - best[:, -2], rtol=1e-4, atol=1e-5)


def test_top_k_cuts_equal_scores_by_id():
    rows = rows_of(400, temperature=1.0, top_k=3, position=np.arange(400))
    got = sample(np.zeros((400, 700), np.float32), rows, unscored(400))
    assert set(got.tokens.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    "narrow", [{"top_p": 0.0}, {"top_k": 1}, {"min_p": 1.0}, {"temperature": 1e-6}]
)
def test_the_narrowest_filters_are_greedy(narrow):
    logits = np.random.default_rng(2).standard_normal((50, 1000)).astype(np.float32)
    rows = rows_of(50, **{"temperature": 1.0, "position": np.arange(50)} | narrow)
    got = sample(logits, rows, unscored(50))
    np.testing.assert_array_equal(got.tokens, logits.argmax(axis=1))


def test_a_wide_nucleus_reaches_beyond_the_first_heads():
    """A flat row of 6,000 tokens: 95 % of it is longer than any head that is tried first."""
    rows = rows_of(300, temperature=1.0, top_p=0.95, position=np.arange(300))
    logits = np.tile(np.linspace(0.0, 0.01, 6000, dtype=np.float32), (300, 1))
    got = sample(logits, rows, unscored(300))
    chance = naive_distribution(logits[:1], rows, 0)
    assert (chance[got.tokens] > 0).all()
    assert got.tokens.min() < 1500, "the far end of the nucleus is drawn too"


def test_logprobs_are_of_the_raw_distribution():
    logits = (np.random.default_rng(4).standard_normal((3, 500)) * 4).astype(np.float32)
    rows = rows_of(
        3, temperature=0.7, top_k=2, num_logprobs=[4, -1, 0], bias=[{7: 5.0}, {}, {9: -np.inf}]
    )
    scored = np.array([-1, 11, 12], np.int32)
    got = sample(logits, rows, scored)
    wide = logits.astype(np.float64)
    exact = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    order = np.argsort(-wide, axis=1, kind="stable")
    assert got.top_ids[0].tolist() == order[0, :4].tolist()
    assert got.top_ids[1].tolist() == [-1] * 4
    np.testing.assert_allclose(got.top_logprobs[0], exact[0, order[0, :4]], rtol=1e-5)
    for row in (0, 2):
        token = got.tokens[row]
        np.testing.assert_allclose(got.logprobs[row], exact[row, token], rtol=1e-5)
        assert got.ranks[row] == order[row].tolist().index(token) + 1
    for row in (1, 2):
        np.testing.assert_allclose(got.scored_logprobs[row], exact[row, scored[row]], rtol=1e-5)
        assert got.scored_ranks[row] == order[row].tolist().index(scored[row]) + 1
    assert got.logprobs[1] == 0.0
    assert got.scored_logprobs[0] == 0.0


def test_equal_logits_rank_by_id_and_more_logprobs_than_tokens_are_all():
    got = sample(logits_of([1, 1, 1]), rows_of(1, num_logprobs=20), np.array([2], np.int32))
    assert got.top_ids.tolist() == [[0, 1, 2]]
    assert got.ranks.tolist() == [1]
    assert got.scored_ranks.tolist() == [3]


def test_impossible_tokens_have_the_least_logprob():
    got = sample(
        logits_of([0, -np.inf, -np.inf]), rows_of(1, num_logprobs=3), np.array([1], np.int32)
    )
    assert got.top_ids.tolist() == [[0, 1, 2]]
    assert got.top_logprobs.tolist() == [[0.0, LOGPROB_MIN, LOGPROB_MIN]]
    assert got.scored_logprobs.tolist() == [LOGPROB_MIN]


@pytest.mark.parametrize("field", ["history", "bias"])
def test_ids_outside_the_vocabulary_are_refused(field):
    """vllm PR#16529: a logit bias out of range must not reach another row."""
    with pytest.raises(ValueError, match=field):
        sample(logits_of([0, 1, 2]), rows_of(1, **{field: [{3: 1.0}]}), unscored(1))


def test_no_rows_at_all():
    got = sample(np.zeros((0, 10), np.float32), rows_of(0), unscored(0))
    assert got.tokens.shape == (0,)


@pytest.mark.parametrize("count", [1, 5, 64, 99, 100, 500])
def test_leading_is_the_head_of_a_stable_sort(count):
    rng = np.random.default_rng(count)
    scores = rng.integers(-20, 20, (7, 100)).astype(np.float32)
    scores[3, ::2] = -np.inf
    found = leading(scores, count)
    for row in range(7):
        order = np.argsort(-scores[row], kind="stable")
        order = order[scores[row][order] > -np.inf][: found.shape[1]]
        got = found[row][found[row] >= 0]
        assert len(got) >= min(count, np.isfinite(scores[row]).sum())
        assert got.tolist() == order[: len(got)].tolist()


def test_noise_is_the_same_everywhere():
    keys = np.array([0, 1, 2**63], np.uint64)
    assert mix64(keys).tolist() == [mix(int(key)) for key in keys]
    first = noise_bits(keys[:1], np.arange(4, dtype=np.uint32))
    assert first.tolist() == noise_bits(keys[:1], np.arange(9, dtype=np.uint32))[:4].tolist()
    ends = np.array([0, 2**32 - 1], np.uint32)
    assert np.isfinite(gumbel(ends)).all()


def test_bits_that_reach_a_noise_are_never_excluded():
    bits = np.concatenate(
        [np.arange(100), np.random.default_rng(0).integers(0, 2**32, 500), 2**32 - 1 - np.arange(9)]
    ).astype(np.uint32)
    assert (bits >= bits_reaching(gumbel(bits))).all()
    assert (bits_reaching(gumbel(bits)).astype(np.int64) + 3 >= bits).all()
    assert bits_reaching(np.array([np.inf, -np.inf])).tolist() == [2**32 - 2, 0]
