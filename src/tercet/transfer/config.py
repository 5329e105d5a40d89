"""Patience and choices of transfers between executors."""

from dataclasses import dataclass
from typing import Literal

from tercet.base.errors import Invalid

WayChoice = Literal["auto", "reference", "layer", "request"]
PopulateChoice = Literal["auto", "always", "never"]


@dataclass(frozen=True, kw_only=True)
class TransferConfig:
    """Checked when made; `Invalid` names the field."""

    way: WayChoice = "auto"
    """How a finished prefill reaches who decodes; `auto`: in place where it can be read there, else
    by cost."""
    populate: PopulateChoice = "auto"
    """Whether what the pool has is fetched or computed; `auto`: by learned costs."""
    lease_s: float = 10.0
    """Blocks are lent for so long after the borrower's last word."""
    renew_s: float = 2.0
    """A borrower says so often that it is still there."""
    silence_s: float = 5.0
    """A lender that says nothing for so long is not waited for: the asker computes for itself."""
    move_timeout_s: float = 20.0
    """A transfer may take so long from its beginning."""
    max_fetches: int = 64
    """Tasks of one executor whose blocks are on their way; further ones wait with nothing held."""
    min_blocks: int = 2
    """A prompt of fewer full blocks is computed where it is decoded."""
    max_stores: int = 16
    """Prompts of one executor that are being stored in the pool; further ones are not stored."""

    def __post_init__(self) -> None:
        for name in ("lease_s", "renew_s", "silence_s", "move_timeout_s"):
            value = getattr(self, name)
            if not 0 < value < 1e6:
                raise Invalid(f"{name} is {value}; expected a positive number.", parameter=name)
        if self.renew_s * 2 > self.lease_s:
            raise Invalid(
                f"renew_s is {self.renew_s} and lease_s {self.lease_s}; a lease has to last for "
                "two renewals at least.",
                parameter="renew_s",
            )
        for name in ("max_fetches", "min_blocks", "max_stores"):
            value = getattr(self, name)
            if value < 1:
                raise Invalid(f"{name} is {value}; expected at least 1.", parameter=name)
