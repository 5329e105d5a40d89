"""Tables as text that reads well in a terminal and in Markdown, and the bars they are held to."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bound that a measured value is held to."""

    what: str
    value: float
    bound: float
    unit: str = ""
    at_least: bool = False
    """Larger is better; otherwise the value must stay under the bound."""

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value < self.bound

    def sentence(self) -> str:
        side = "at least" if self.at_least else "under"
        verdict = "holds" if self.holds else "MISSED"
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"- {verdict}: {self.what}: {show(self.value)}{unit}, bar {side} {self.bound:g}{unit}"
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    """What one module measured."""

    title: str
    command: str
    """What prints it."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    bars: Sequence[Bar] = ()
    note: str = ""
    """How it was measured."""
    further: Sequence["Table"] = field(default=())
    """Tables that explain this one."""

    def lines(self, level: int = 2) -> list[str]:
        """Give the table as Markdown."""
        out = [f"{'#' * level} {self.title}", ""]
        if self.command:
            out += [f"`{self.command}`", ""]
        out += [*grid(self.columns, self.rows), ""]
        if self.bars:
            out += [*(bar.sentence() for bar in self.bars), ""]
        if self.note:
            out += [*textwrap.wrap(self.note, 100, break_long_words=False), ""]
        for table in self.further:
            out += table.lines(level + 1)
        return out


def skipped(title: str, command: str, reason: str) -> Table:
    """Give the table of something that could not be measured here."""
    return Table(title=title, command=command, columns=("skipped",), rows=((reason,),))


def grid(columns: Sequence[str], rows: Sequence[Sequence[str | float]]) -> list[str]:
    """Align a Markdown table: text to the left, numbers to the right."""
    cells = [[one if isinstance(one, str) else show(one) for one in row] for row in rows]
    numeric = [
        any(not isinstance(row[place], str) for row in rows if place < len(row))
        for place in range(len(columns))
    ]
    widths = [
        max(len(columns[place]), 3, *(len(row[place]) for row in cells))
        for place in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        parts = [
            one.rjust(width) if right else one.ljust(width)
            for one, width, right in zip(row, widths, numeric, strict=True)
        ]
        return f"| {' | '.join(parts)} |"

    marks = [
        "-" * (width - 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]
    return [line(columns), f"| {' | '.join(marks)} |", *map(line, cells)]


def show(value: float) -> str:
    """Give a number with the digits that mean something."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def spread(values: Sequence[float]) -> str:
    """Give the least and the greatest of several runs."""
    return f"{show(min(values))} - {show(max(values))}"


def middle(values: Sequence[float]) -> float:
    """Give the median."""
    return median(values)
