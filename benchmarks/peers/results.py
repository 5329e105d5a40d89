"""What was measured, one JSON line each: a run can be cut short and gone on with.

A measure's name says the row and the unit: `decode 8`, `prefill 1024` (tokens/s), `first token`
(s), `limit` (tokens/s), `memory`, `memory kv` (MB), and of loads `load tokens/s`, `load ttft p95`,
`load itl p95` (ms).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct


class Measure(Struct, frozen=True, kw_only=True):
    """One value of one system in one round."""

    system: str
    name: str
    value: float
    turn: int
    """The round, from 0."""


class Load(Struct, frozen=True, kw_only=True):
    """A server under Poisson arrivals: what clients saw."""

    system: str
    turn: int
    rate: float
    """Requests a second that were offered; 0: as many as 16 places allow (closed loop)."""
    tokens_per_s: float
    ttft_p95_ms: float
    itl_p95_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    failed: int


class Failure(Struct, frozen=True, kw_only=True):
    """A system that could not be measured, and why."""

    system: str
    reason: str


class Note(Struct, frozen=True, kw_only=True):
    """A line for the report's head: versions, and how busy the machine was at the start."""

    text: str


class Results:
    """The measures of a run, kept in a file as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.measures: list[Measure] = []
        self.loads: list[Load] = []
        self.failures: list[Failure] = []
        self.notes: list[Note] = []

    def begin(self) -> None:
        """Forget what the file holds."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("")

    def read(self) -> None:
        """Take what the file holds."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            self._take(msgspec.json.decode(line, type=_Line))

    def add(self, one: "Measure | Load | Failure | Note") -> None:
        """Take a result, on disk too."""
        kind = type(one).__name__.lower()
        line = msgspec.json.encode(_Line(**{kind: one}))  # type: ignore[arg-type]
        with self._path.open("ab") as file:
            file.write(line + b"\n")
        self._take(msgspec.json.decode(line, type=_Line))

    def has(self, system: str, name: str, turn: int) -> bool:
        """Is there such a value already?"""
        return any((m.system, m.name, m.turn) == (system, name, turn) for m in self.measures)

    def values(self, system: str, name: str) -> list[float]:
        """The values of all rounds."""
        return [m.value for m in self.measures if (m.system, m.name) == (system, name)]

    def middle(self, system: str, name: str) -> float | None:
        """The median over the rounds, None where nothing was measured."""
        values = self.values(system, name)
        return median(values) if values else None

    def best(self, systems: Iterable[str], name: str, *, least: bool = False) -> str | None:
        """The system with the best median; None where no system has one."""
        found = {one: value for one in systems if (value := self.middle(one, name)) is not None}
        if not found:
            return None
        return (min if least else max)(found, key=lambda one: found[one])

    def ratios(self, ours: str, theirs: str, name: str) -> list[float]:
        """Ours over theirs in rounds that have both: neighbours in time."""
        mine, other = ({m.turn: m.value for m in self._of(one, name)} for one in (ours, theirs))
        return [mine[turn] / other[turn] for turn in sorted(mine.keys() & other.keys())]

    def _of(self, system: str, name: str) -> Sequence[Measure]:
        return [m for m in self.measures if (m.system, m.name) == (system, name)]

    def _take(self, line: "_Line") -> None:
        if line.measure:
            self.measures.append(line.measure)
        if line.load:
            self.loads.append(line.load)
        if line.failure:
            self.failures.append(line.failure)
        if line.note:
            self.notes.append(line.note)


class _Line(Struct, omit_defaults=True):
    measure: Measure | None = None
    load: Load | None = None
    failure: Failure | None = None
    note: Note | None = None
