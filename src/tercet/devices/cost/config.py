"""Settings of the cost device."""

from dataclasses import dataclass, fields

from tercet.base.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConfig:
    """The accelerator that the cost device plays. All zero: a step takes no time."""

    flops_per_s: float = 0.0
    """Arithmetic it does in a second; 0: without limit."""
    bytes_per_s: float = 0.0
    """Bytes it moves from and to its memory in a second; 0: without limit."""
    step_ns: float = 0.0
    """Time that every step takes besides (launches, synchronisation)."""
    repeat: int = 0
    """Made-up text repeats itself after so many tokens, as quotes do; 0: never."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value < float("inf"):
                raise Invalid(
                    f"cost.{field.name} is {value}, expected a number of at least 0.",
                    parameter=f"cost.{field.name}",
                )
