"""Changes and their intervals."""

import numpy as np
import pytest
from benchmarks.accuracy import statistics
from benchmarks.accuracy.subject import Answers
from benchmarks.accuracy.tables import accuracy_table


def test_perplexity_of_even_chances_is_their_number() -> None:
    assert statistics.perplexity(np.full((3, 10), np.log(50))) == pytest.approx(50)


def test_a_change_of_all_alike_has_no_width() -> None:
    truth = np.random.default_rng(1).random((20, 30))
    change = statistics.perplexity_change(truth + np.log(1.01), truth)
    assert (change.value, change.low, change.high) == pytest.approx((1.0, 1.0, 1.0))


def test_intervals_hold_the_value_and_shrink_with_more_units() -> None:
    rng = np.random.default_rng(2)
    widths = []
    for count in (50, 5000):
        truth = rng.random(count) < 0.5
        right = truth ^ (rng.random(count) < 0.1)
        change = statistics.accuracy_change(right, truth)
        assert change.low <= change.value <= change.high
        widths.append(change.high - change.low)
    assert widths[1] < widths[0] / 5


def test_accuracy_change_is_in_points() -> None:
    truth = np.array([True] * 8 + [False] * 2)
    right = np.array([True] * 7 + [False] * 3)
    assert statistics.accuracy_change(right, truth).value == pytest.approx(-10)
    assert statistics.share_estimate(truth).value == pytest.approx(80)


def test_divergence_is_nothing_for_shifted_scores_and_what_the_formula_says_else() -> None:
    scores = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]], np.float32)
    truth = statistics.log_softmax(scores).astype(np.float32)
    assert statistics.divergences(truth, scores + 5) == pytest.approx([0, 0], abs=1e-6)
    half, other = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    found = statistics.divergences(half.astype(np.float32), other.astype(np.float32))
    assert found == pytest.approx([0.5 * np.log(2) + 0.5 * np.log(2 / 3)], rel=1e-5)


def test_the_table_says_which_bars_are_missed() -> None:
    rng = np.random.default_rng(3)
    truth = Answers(
        window_nll=rng.random((8, 16)) + 2,
        word_right=rng.random(100) < 0.5,
        choice_right=rng.random(100) < 0.7,
        kl=np.empty(0),
        same_best=np.empty(0, np.bool_),
    )
    worse = Answers(
        window_nll=truth.window_nll + 0.02,
        word_right=truth.word_right,
        choice_right=truth.choice_right & (np.arange(100) > 20),
        kl=np.full((8, 4), 0.01),
        same_best=np.ones((8, 4), np.bool_),
    )
    table = accuracy_table(truth, {"int8": worse}, "note")
    holds = [bar.holds for bar in table.bars]
    assert holds == [False, True, False]
    assert len(table.rows) == 2
    assert "+2.02" in "".join(map(str, table.rows[1]))
    assert "MISSED" in "\n".join(table.lines())
