"""One line an event: when, how grave, which process, what happened, and the ids it concerns.

    2026-11-29T22:48:21.123Z info front job.ended cause=1.7 request=req-9f finish=stop ...
    {"time":"...","level":"info","process":"front","event":"job.ended","cause":"1.7", ...}

Values come from facts and from code, never from a request's text. A value that holds white space
or a line break is quoted, so a line stays one event whatever is in it.
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from tercet.messages.effects import Fact
from tercet.observe.config import LEVELS, ObserveConfig

Value = str | int | float | bool | None

_LEVEL_OF_FACT = {
    "executor.lost": "warning",
    "executor.gone": "warning",
    "cluster.executor_gone": "warning",
    "job.refused": "warning",
    "step.done": "debug",
    "task.admitted": "debug",
    "task.finished": "debug",
    "task.preempted": "debug",
}
"""Facts that are not named here are `info`."""


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


class Log:
    """Writes the lines of one process."""

    def __init__(
        self,
        process: str,
        config: ObserveConfig,
        *,
        write: Callable[[str], None] = _write_to_stderr,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._process = process
        self._json = config.log_format == "json"
        self._rank = LEVELS.index(config.log_level)
        self._write = write
        self._clock = clock

    def wants(self, level: str) -> bool:
        return LEVELS.index(level) >= self._rank

    def line(self, level: str, event: str, /, **values: Value) -> None:
        """Write an event, unless the level is below the one that was set."""
        if self.wants(level):
            self._write(self._format(level, event, values))

    def on_fact(self, fact: Fact) -> None:
        """Write what a machine tells."""
        level = _LEVEL_OF_FACT.get(fact.name, "info")
        if not self.wants(level):
            return
        values: dict[str, Value] = {}
        if fact.cause:
            values["cause"] = fact.cause
        values.update((name, value) for name, value in fact.labels if value)
        values.update((name, _short(value)) for name, value in fact.values)
        self._write(self._format(level, fact.name, values))

    def _format(self, level: str, event: str, values: Mapping[str, Value]) -> str:
        moment = datetime.fromtimestamp(self._clock(), UTC)
        shown = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._json:
            fixed = {"time": shown, "level": level, "process": self._process, "event": event}
            return msgspec.json.encode({**values, **fixed}).decode() + "\n"
        words = [f"{name}={_word(value)}" for name, value in values.items()]
        return " ".join([shown, level, self._process.replace(" ", "-"), event, *words]) + "\n"


def _short(value: float) -> float | int:
    number = float(value)
    return int(number) if number.is_integer() else round(number, 6)


def _word(value: Value) -> str:
    if isinstance(value, str):
        plain = value.isprintable() and value and not any(mark in value for mark in ' "=')
        return value if plain else msgspec.json.encode(value).decode()
    return msgspec.json.encode(value).decode()


class Bridge(logging.Handler):
    """Brings the lines of libraries (uvicorn, asyncio) into the same form."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a library's record; a traceback becomes one quoted value."""
        level = record.levelname.lower()
        values: dict[str, Value] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            values["trace"] = logging.Formatter().formatException(record.exc_info)
        self._log.line(level if level in LEVELS else "error", "library", **values)


def bridge_libraries(log: Log, *, level: int = logging.WARNING) -> None:
    """Send what libraries log, from this level, through the log; nothing else prints it."""
    root = logging.getLogger()
    root.handlers[:] = [Bridge(log)]
    root.setLevel(level)
