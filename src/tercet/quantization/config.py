"""Settings of a calibration."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """How much is looked at, and how much may be lost."""

    tokens: int = 4096
    """Tokens that activations are observed on."""
    held_out: int = 1024
    """Further tokens, on which the gain of each step is measured."""
    sequence: int = 512
    """Tokens of a sequence at most."""
    rows: int = 384
    """Rows of each input that are kept for the searches, spread over all tokens."""
    error_max: float = 0.05
    """Matrices stay in bfloat16 where their outputs would be off by more than this share (root of
    the mean square)."""

    products_bytes_max: int = 1 << 30
    """Memory for products of inputs with themselves; what does not fit takes another pass."""

    def __post_init__(self) -> None:
        for name in ("tokens", "held_out", "sequence", "rows"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 2")
        if not self.error_max > 0:
            raise ValueError(f"error_max is {self.error_max}, expected a positive number")
