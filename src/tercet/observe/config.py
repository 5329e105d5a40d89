"""How the house talks to its operator."""

from dataclasses import dataclass

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class ObserveConfig:
    """Options of logs."""

    log_format: str = "text"
    """`text` for people, `json` for collectors: one object a line."""
    log_level: str = "info"
    """Lines below it are not written: debug, info, warning, error."""

    def __post_init__(self) -> None:
        if self.log_format not in FORMATS:
            raise ValueError(f"The log format is {self.log_format!r}, but text or json is served.")
        if self.log_level not in LEVELS:
            raise ValueError(
                f"The log level is {self.log_level!r}, but one of {', '.join(LEVELS)} was expected."
            )
