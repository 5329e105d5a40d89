"""Costs follow what steps take, slowly and within bounds."""

import pytest

from tercet.messages.plan import StepCost
from tercet.scheduling.pace import Pace

MEASURED = StepCost(base_ns=10e6, per_row_ns=1e6, per_logit_ns=1e5, per_pair_ns=10.0)


def steps(pace, *, true_factor, count):
    for _ in range(count):
        predicted = pace.cost.predict_ns(rows=8, logits=8, pairs=1000)
        taken = int(true_factor * MEASURED.predict_ns(rows=8, logits=8, pairs=1000))
        pace.learn(predicted_ns=predicted, taken_ns=taken)


@pytest.mark.parametrize("true_factor", [0.1, 0.5, 1.0, 3.0, 12.0])
def test_costs_settle_at_what_steps_take(true_factor):
    pace = Pace(MEASURED)
    steps(pace, true_factor=true_factor, count=120)
    assert pace.cost.base_ns == pytest.approx(MEASURED.base_ns * true_factor, rel=0.05)
    assert pace.cost.per_row_ns / pace.cost.base_ns == pytest.approx(0.1)


def test_one_odd_step_moves_little():
    pace = Pace(MEASURED)
    pace.learn(predicted_ns=20_000_000, taken_ns=20_000_000_000)
    assert pace.cost.base_ns < 1.4 * MEASURED.base_ns


def test_the_factor_is_bounded():
    pace = Pace(MEASURED)
    steps(pace, true_factor=1e6, count=500)
    assert pace.cost.base_ns <= 32 * MEASURED.base_ns
    steps(pace, true_factor=1e-6, count=2000)
    assert pace.cost.base_ns >= MEASURED.base_ns / 33


@pytest.mark.parametrize(("predicted", "taken"), [(1000, 50_000), (0, 5), (20_000_000, 0)])
def test_steps_that_say_nothing_change_nothing(predicted, taken):
    pace = Pace(MEASURED)
    pace.learn(predicted_ns=predicted, taken_ns=taken)
    assert pace.cost == MEASURED
