"""What can be set of a node agent."""

from dataclasses import dataclass

from tercet.base.errors import Invalid


@dataclass(frozen=True, kw_only=True)
class NodeAgentConfig:
    """Bounds of patience; every value is checked when it is made."""

    progress_floor_s: float = 5.0
    """An executor may show no progress for so long, whatever its step was predicted to take."""
    progress_factor: float = 8.0
    """And for so many times the predicted duration of its running step beyond that."""
    sample_gap_s_max: float = 1.0
    """The time between two samples counts as at most this: whoever was not looking (a stopped
    host, a busy agent) holds no silence against others."""
    stale_samples_min: int = 4
    """Samples in a row without progress that a kill takes, however long they took."""
    start_timeout_s: float = 120.0
    """An executor that is not ready by then is killed."""
    kill_retry_s: float = 2.0
    """A killed executor whose exit was not seen is killed again after this."""

    def __post_init__(self) -> None:
        for name in (
            "progress_floor_s",
            "progress_factor",
            "sample_gap_s_max",
            "start_timeout_s",
            "kill_retry_s",
        ):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise Invalid(f"{name} is {value}; expected a positive number.", parameter=name)
        if self.stale_samples_min < 1:
            raise Invalid(
                f"stale_samples_min is {self.stale_samples_min}; expected at least 1.",
                parameter="stale_samples_min",
            )
