"""How long a step takes, from its sizes: no time, a linear model, or a roofline over a program."""

from collections.abc import Callable
from dataclasses import dataclass

from tercet.program.costs import Sizes, folded
from tercet.program.program import Program

Duration = Callable[[Sizes], int]
"""Nanoseconds of a step of these sizes."""


def no_time(_: Sizes) -> int:
    """Every step is done at once."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearDuration:
    """base + rows x per_row + logits rows x per_logit + attended pairs x per_pair, in ns; the
    coefficients of `messages.plan.StepCost`.
    """

    base_ns: float = 0.0
    per_row_ns: float = 0.0
    per_logit_ns: float = 0.0
    per_pair_ns: float = 0.0

    def __call__(self, sizes: Sizes) -> int:
        return int(
            self.base_ns
            + sizes.rows * self.per_row_ns
            + sizes.logits_rows * self.per_logit_ns
            + sizes.attended_pairs * self.per_pair_ns
        )


def roofline(
    program: Program, *, flops_per_s: float, bytes_per_s: float, step_ns: float = 0.0
) -> Duration:
    """Each operation takes the longer of its arithmetic and its memory traffic (Williams,
    Waterman and Patterson, "Roofline", 2009); `step_ns` is what a step costs besides.

    Equal operations are folded: the answer takes microseconds for any depth.
    """
    parts = [(cost.flops, cost.bytes, count) for (_, cost), count in folded(program).items()]

    def duration(sizes: Sizes) -> int:
        seconds = sum(
            count * max(flops.at(sizes) / flops_per_s, moved.at(sizes) / bytes_per_s)
            for flops, moved, count in parts
        )
        return int(step_ns + seconds * 1e9)

    return duration
