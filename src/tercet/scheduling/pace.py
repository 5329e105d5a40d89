"""What steps cost now: the costs that were measured at start, corrected by what steps take.

A start in a busy moment measures too much, and a machine that gets busy later takes more than was
measured. Both would leave budgets, late plans and the watch for progress wrong for good.
"""

from tercet.messages.plan import StepCost

_WEIGHT = 0.1
"""Of the latest step."""
_RATIO_MIN, _RATIO_MAX = 0.25, 4.0
"""One step moves the factor no further than such a one would."""
_FACTOR_MIN, _FACTOR_MAX = 1 / 32, 32.0
_PREDICTED_NS_MIN = 1_000_000
"""Shorter steps are mostly not what was measured."""


class Pace:
    """A factor on measured costs, moved a little by every step."""

    def __init__(self, measured: StepCost) -> None:
        self.cost = measured
        """To plan with now."""
        self._measured = measured
        self._factor = 1.0

    def learn(self, *, predicted_ns: int, taken_ns: int) -> None:
        """Take account of a step; steps that took no measurable time say nothing."""
        if predicted_ns < _PREDICTED_NS_MIN or taken_ns <= 0:
            return
        ratio = min(max(taken_ns / predicted_ns, _RATIO_MIN), _RATIO_MAX)
        factor = self._factor * (1.0 + _WEIGHT * (ratio - 1.0))
        self._factor = min(max(factor, _FACTOR_MIN), _FACTOR_MAX)
        measured = self._measured
        self.cost = StepCost(
            base_ns=measured.base_ns * self._factor,
            per_row_ns=measured.per_row_ns * self._factor,
            per_logit_ns=measured.per_logit_ns * self._factor,
            per_pair_ns=measured.per_pair_ns * self._factor,
        )
