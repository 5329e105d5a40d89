"""Limits of what one executor takes on and of what one step holds."""

from dataclasses import dataclass
from typing import Literal

from tercet.base.errors import Invalid
from tercet.messages.plan import GUESSES_MAX


@dataclass(frozen=True, kw_only=True)
class SchedulingConfig:
    """Checked when made; `Invalid` names the field."""

    max_slots: int = 128
    """Tasks that hold blocks at a time."""
    max_waiting: int = 1024
    """Tasks that may wait; one more is answered `overloaded`."""
    step_ns_max: int = 500_000_000
    """A step's predicted duration; only single rows may pass it, as nothing can be smaller, and
    rows that take no longer than the step would without any (`budget`)."""
    max_rows: int = 4096
    """Rows of a step, whatever they cost."""
    prefill_share: float = 0.25
    """Part of a step that decoding leaves to prompts when both want all of it."""
    max_passes: int = 64
    """How many later tasks may be admitted before a waiting one that finds no room; after that
    all behind it wait with it."""
    lookahead: int = 8
    """How far behind such a task one looks for others that fit."""
    speculation: Literal["auto", "off"] = "auto"
    """`auto`: next tokens are guessed from a task's own text where that makes steps worth more."""
    draft_max: int = 8
    """Guessed tokens of a task in one step."""

    def __post_init__(self) -> None:
        for name in ("max_slots", "max_waiting", "step_ns_max", "max_rows"):
            value = getattr(self, name)
            if value < 1:
                raise Invalid(f"{name} is {value}; expected at least 1.", parameter=name)
        if self.speculation not in ("auto", "off"):
            raise Invalid(
                f"speculation is {self.speculation}; expected auto or off.",
                parameter="speculation",
            )
        if not 1 <= self.draft_max <= GUESSES_MAX:
            raise Invalid(
                f"draft_max is {self.draft_max}; expected 1 to {GUESSES_MAX}.",
                parameter="draft_max",
            )
        for name in ("max_passes", "lookahead"):
            value = getattr(self, name)
            if value < 0:
                raise Invalid(f"{name} is {value}; expected 0 or more.", parameter=name)
        if self.max_rows < self.max_slots:
            raise Invalid(
                f"max_rows is {self.max_rows}; expected at least max_slots ({self.max_slots}).",
                parameter="max_rows",
            )
        if not 0 < self.prefill_share < 1:
            raise Invalid(
                f"prefill_share is {self.prefill_share}; expected more than 0 and less than 1.",
                parameter="prefill_share",
            )

    @property
    def drafts(self) -> int:
        """Guessed tokens of a task in one step; 0: nothing is guessed."""
        return 0 if self.speculation == "off" else self.draft_max
