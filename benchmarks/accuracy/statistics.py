"""Estimates with 95 % bootstrap intervals; units (windows, questions) are drawn with replacement.

Quantized and float32 answers to the same unit are drawn together: intervals are of differences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Form = Callable[[F64], F64]
DRAWS = 2000
LOW, HIGH = 2.5, 97.5


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds it in 95 of 100 draws."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """The value and the interval, signs shown."""
        return f"{self.value:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def perplexity(nll: F64) -> float:
    """Of [windows, tokens] negative log-likelihoods."""
    return float(np.exp(nll.mean()))


def perplexity_change(nll: F64, truth: F64) -> Estimate:
    """By how many percent perplexity is higher; windows are the units."""
    per_window = nll.mean(axis=1) - truth.mean(axis=1)
    return _estimate(per_window, lambda means: 100 * np.expm1(means))


def accuracy_change(right: NDArray[np.bool_], truth: NDArray[np.bool_]) -> Estimate:
    """By how many points accuracy is higher; questions are the units."""
    return _estimate(right.astype(np.float64) - truth, lambda means: 100 * means)


def mean_estimate(values: F64) -> Estimate:
    """The mean of one value for each unit."""
    return _estimate(values, lambda means: means)


def share_estimate(right: NDArray[np.bool_]) -> Estimate:
    """The share of true answers in percent."""
    return _estimate(right.astype(np.float64), lambda means: 100 * means)


def divergences(truth: NDArray[np.float32], logits: NDArray[np.float32]) -> F64:
    """[rows] KL(truth || other) of rows of log-probabilities and of raw scores, in nats."""
    other = log_softmax(logits)
    p = np.exp(truth.astype(np.float64))
    found: F64 = (p * (truth - other)).sum(axis=1)
    return found


def log_softmax(logits: NDArray[np.float32]) -> F64:
    """Rows of log-probabilities in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: F64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def _estimate(values: F64, form: Form) -> Estimate:
    """The form of the mean, and of means of draws; always the same draws for as many units."""
    rng = np.random.default_rng(len(values))
    draws = np.array(
        [values[rng.integers(0, len(values), len(values))].mean() for _ in range(DRAWS)]
    )
    low, high = np.percentile(form(draws), [LOW, HIGH])
    return Estimate(float(form(np.array([values.mean()]))[0]), float(low), float(high))
