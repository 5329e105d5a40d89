"""Patience of a task executor, and what its engine told at start."""

from dataclasses import dataclass

from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.base.ids import Address
from tercet.messages.kv import Reach
from tercet.messages.plan import StepCost


@dataclass(frozen=True, kw_only=True)
class TaskExecutorConfig:
    """Checked when made; `Invalid` names the field."""

    late_plan_ns: int = 20_000_000
    """While a step of at least this predicted length runs, the next is planned late, so that tasks
    that arrive meanwhile join it."""
    plan_margin_ns: int = 5_000_000
    """How long before the predicted end of such a step the next one is planned."""
    front_grace_ns: int = 5_000_000_000
    """A front whose connection is gone for so long loses its tasks."""

    def __post_init__(self) -> None:
        for name in ("late_plan_ns", "plan_margin_ns", "front_grace_ns"):
            value = getattr(self, name)
            if value < 0:
                raise Invalid(f"{name} is {value}; expected 0 or more.", parameter=name)


class Capacity(Struct, frozen=True, kw_only=True):
    """What an engine has: fixed while it lives."""

    num_blocks: int
    context_max: int
    """Tokens of a sequence, prompt and generated ones."""
    vocab: int = 1 << 31
    """Ids of tokens are below it."""
    cost: StepCost
    fingerprint: str
    """Names weights and numerics: KV of another fingerprint is never equal (I3)."""
    arena: int = 0
    first_block: int = 0
    """Id of the arena's first block over all mapped arenas."""
    reach: Reach = Reach()
    """Where others find this executor and its arena."""
    agent: Address | None = None
    """Its host's agent: where it asks the pool."""
    value_tokens: int = 0
    """Tokens of a value of the pool; 0: there is no pool."""
