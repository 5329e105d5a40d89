"""How long a step takes, from its sizes: no time, a linear model, or a roofline over a program."""

from collections.abc import Callable
from dataclasses import dataclass

from tercet.devices.cost.config import CostConfig
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


def duration_of(program: Program, config: CostConfig) -> Duration:
    """Each operation takes the longer of its arithmetic and its memory traffic (Williams,
    Waterman and Patterson, "Roofline", 2009), and the step some time besides.

    Equal operations are folded: an answer takes microseconds for any depth.
    """
    if not (config.flops_per_s or config.bytes_per_s or config.step_ns):
        return no_time
    per_flop = 1e9 / config.flops_per_s if config.flops_per_s else 0.0
    per_byte = 1e9 / config.bytes_per_s if config.bytes_per_s else 0.0
    parts = [(cost.flops, cost.bytes, count) for (_, cost), count in folded(program).items()]

    def duration(sizes: Sizes) -> int:
        nanoseconds = sum(
            count * max(flops.at(sizes) * per_flop, moved.at(sizes) * per_byte)
            for flops, moved, count in parts
        )
        return int(config.step_ns + nanoseconds)

    return duration
