"""Populate or recompute: what decisions cost, over a grid of lengths, sources and loads.

    truth (the economy never sees it)          learned from scratch by so many noisy requests
    fetch = latency + (before + bytes) / bandwidth      time x lognormal noise
    prefill of the executor, in steps                   its costs are measured a little wrong

Then, for each cell of the grid, what was decided is compared with the better of the two: all that
is found, or nothing of it. Pure arithmetic: no model, no clock, seconds to run.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import click

from benchmarks.report import Bar, Table
from tercet.cache.economy import Economy

RESULTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "populate.md"
VALUE_TOKENS = 128
STEP_NS_MAX = 250e6
LENGTHS = (300, 600, 1200, 2500, 5000, 10_000, 20_000, 32_000)
SHARES = (0.125, 0.3, 0.5, 0.9)
UNDER_WAY = (0, 32 << 20, 256 << 20)
QUEUES_NS = (0.0, 300e6, 3e9)
NEAR = 1.1
"""Within this of the better choice is good."""


@dataclass(frozen=True)
class Model:
    """A model on an executor: what computing costs, how large its KV is."""

    name: str
    bytes_per_token: int
    base_ns: float
    per_row_ns: float
    per_pair_ns: float

    def prefill_ns(self, computed: int, known: int) -> float:
        rows = known - computed
        pairs = rows * computed + rows * (rows + 1) / 2
        linear = rows * self.per_row_ns + pairs * self.per_pair_ns
        return linear + self.base_ns * ceil(linear / (STEP_NS_MAX - self.base_ns))


@dataclass(frozen=True)
class Source:
    name: str
    latency_ns: float
    bytes_per_s: float

    def fetch_ns(self, size: int) -> float:
        return self.latency_ns + size / self.bytes_per_s * 1e9


MODELS = (
    Model("135M on 2 cores", 23_040, 20e6, 1.2e6, 120.0),
    Model("8B on 64 cores", 131_072, 60e6, 2.5e6, 500.0),
    Model("8B on an accelerator", 131_072, 8e6, 0.05e6, 2.0),
)
SOURCES = (
    Source("dram", 100e3, 8e9),
    Source("ssd", 2e6, 0.6e9),
    Source("DRAM", 600e3, 1.1e9),
    Source("peer:slow", 20e6, 40e6),
    Source("peer:awful", 200e6, 5e6),
)


@dataclass(frozen=True)
class Cell:
    """One situation: a prompt of which a part is found, at a source and an executor with work."""

    model: Model
    source: Source
    tokens: int
    found: int
    """Values."""
    under_way: int
    queue_ns: float

    @property
    def pieces(self) -> list[tuple[str, int]]:
        return [(self.source.name, VALUE_TOKENS * self.model.bytes_per_token)] * self.found

    def saved_ns(self, wrong: float = 1.0) -> list[float]:
        whole = self.model.prefill_ns(0, self.tokens)
        return [
            wrong * (whole - self.model.prefill_ns(VALUE_TOKENS * count, self.tokens))
            for count in range(1, self.found + 1)
        ]

    def fetch_ns(self, count: int) -> float:
        size = count * VALUE_TOKENS * self.model.bytes_per_token
        return self.source.fetch_ns(self.under_way + size) if count else 0.0

    def taken_ns(self, count: int) -> float:
        """The truth: until the prompt is computed, if so many values are fetched."""
        rest = self.model.prefill_ns(VALUE_TOKENS * count, self.tokens)
        return max(self.fetch_ns(count), self.queue_ns) + rest


def grid(model: Model) -> Iterator[Cell]:
    for source in SOURCES:
        for tokens in LENGTHS:
            for share in SHARES:
                found = int(tokens * share) // VALUE_TOKENS
                for under_way in UNDER_WAY if found else ():
                    for queue_ns in QUEUES_NS:
                        yield Cell(model, source, tokens, found, under_way, queue_ns)


def learned(model: Model, rand: random.Random, *, requests: int, noise: float) -> Economy:
    """An economy after so many requests of all kinds, decided by itself as it went."""
    economy = Economy()
    cells = list(grid(model))
    for _ in range(requests):
        cell = rand.choice(cells)
        wrong = rand.lognormvariate(0.0, 0.05)
        before = economy.begin([(cell.source.name, cell.under_way)])
        count = economy.worth(cell.pieces, cell.saved_ns(wrong), queue_ns=cell.queue_ns)
        trip = economy.begin(cell.pieces[:count])
        economy.end(before, 0)
        if count:
            economy.end(trip, int(cell.fetch_ns(count) * rand.lognormvariate(0.0, noise)))
    return economy


def judged(economy: Economy, cell: Cell) -> float:
    """How much slower than the better of the two the decision is: 1.0 is not at all."""
    before = economy.begin([(cell.source.name, cell.under_way)])
    count = economy.worth(cell.pieces, cell.saved_ns(), queue_ns=cell.queue_ns)
    economy.end(before, 0)
    return cell.taken_ns(count) / min(cell.taken_ns(0), cell.taken_ns(cell.found))


@dataclass(frozen=True)
class Shares:
    """Of a grid's cells: how many are decided near the better choice."""

    ours: float
    always: float
    never: float
    worst: float
    """How much slower than the better choice the worst hundredth of our decisions is."""


def shares(model: Model, *, seed: int = 1, requests: int = 200, noise: float = 0.25) -> Shares:
    """Learn, then judge the whole grid."""
    economy = learned(model, random.Random(seed), requests=requests, noise=noise)
    cells = list(grid(model))
    ours = sorted(judged(economy, cell) for cell in cells)
    both = [(cell.taken_ns(cell.found), cell.taken_ns(0)) for cell in cells]
    return Shares(
        ours=sum(ratio <= NEAR for ratio in ours) / len(cells),
        always=sum(populated <= NEAR * computed for populated, computed in both) / len(cells),
        never=sum(computed <= NEAR * populated for populated, computed in both) / len(cells),
        worst=ours[-len(cells) // 100],
    )


def table() -> Table:
    """Judge decisions for several models and numbers of requests to learn from."""
    rows: list[tuple[str | float, ...]] = []
    bars = []
    for model in MODELS:
        for requests in (20, 200, 1000):
            found = shares(model, requests=requests)
            rows.append(
                (
                    model.name,
                    requests,
                    *(f"{100 * one:.1f} %" for one in (found.ours, found.always, found.never)),
                    f"{found.worst:.2f}x",
                )
            )
            what = (
                f"{model.name}, after {requests} requests: at most 10 % slower, share of the grid"
            )
            bars.append(Bar(what=what, value=found.ours, bound=0.95, at_least=True))
    cells = sum(1 for _ in grid(MODELS[0]))
    return Table(
        title="Populate or recompute",
        command="python -m benchmarks.populate --write",
        columns=(
            "executor",
            "requests before",
            "near the better",
            "always populate",
            "never populate",
            "worst hundredth",
        ),
        rows=rows,
        bars=bars,
        note=(
            f"Arithmetic, no machine: {cells} cells of lengths, found shares, sources (100 us at "
            "8 GB/s to 200 ms at 5 MB/s), bytes under way at the source and queues at the "
            "executor. Costs of sources are learned from scratch by requests that the economy "
            "decides itself; fetches vary by a lognormal factor of sigma 0.25, measured step costs "
            "by 0.05. Near is at most 10 % slower than the better of fetching all and nothing."
        ),
    )


@click.command()
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{RESULTS.name} too.")
def main(*, write: bool) -> None:
    """Judge decisions over the grid."""
    text = "\n".join(["# Populate or recompute", "", *table().lines()])
    click.echo(text)
    if write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
