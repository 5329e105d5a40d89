"""Does routing need affinity when every executor reaches every block? `python -m
benchmarks.peer_access TRACE`, in virtual time (docs/simulator.md), with the machines that serve.

TRACE is a .jsonl(.gz) in Mooncake's form (kvcache-ai/Mooncake, FAST'25): timestamp (ms),
input_length, output_length, hash_ids, one for each 512 tokens of the prompt. Times are pressed
together until the executors cannot keep up, so that what ends in a second is what they can do.

Each host has one executor that prefills and decodes, and, with a pool, a share of it. A token's KV
is 4 KiB / 16 here instead of the some 300 KiB of a large model; links are slower by as much.
"""

import gzip
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import click
import msgspec

from benchmarks.machine import heading
from benchmarks.report import Bar, Table
from tercet.base.ids import BLOCK_TOKENS
from tercet.job_executor.config import Routing
from tercet.messages.effects import Effect, Fact
from tercet.sim.arrivals import Arrival, TraceClients
from tercet.sim.memories import CELL_BYTES
from tercet.sim.run import Run
from tercet.sim.scenario import ClusterSpec, NetworkSpec, Scenario, WorkloadSpec

PART_TOKENS = 512
KV_SCALE = 1250
"""Bytes of a token's KV of a large model (320 KB) for one byte of ours."""
LINK_GB = 12.5
"""GB a second between two hosts in one direction: 100 Gbit/s."""
BUS_GB = 50.0
ENDED_PART = 0.95
"""Throughput is counted up to the end of so many: the last ones wait for the longest, not for
room."""
PEER_BAR = 0.97
TITLES = {"recorded": "As recorded", "skewed": "Popularity skewed"}
SKEWED_MAX = 4000
"""Requests of the skewed trace."""


class Line(msgspec.Struct):
    """One request of a trace."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


@dataclass(frozen=True)
class Size:
    """What serves."""

    hosts: int
    speed: float
    """Times of the trace pass so many times faster."""
    local_tokens: int = 262_144
    """KV that an executor has room for."""
    pool_tokens: int = 524_288
    """KV that a host's share of the pool has room for."""


@dataclass(frozen=True)
class Outcome:
    requests_per_s: float
    tokens_per_s: float
    first_token_s: float
    """Median, queues included."""
    hit: float
    """Part of prompt tokens that were not computed."""
    pooled: float
    """Part of prompt tokens that came from the pool."""


def read_trace(path: Path, count: int) -> list[Line]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        return [msgspec.json.decode(line, type=Line) for line in islice(file, count)]


def arrivals(lines: Iterable[Line], speed: float) -> list[Arrival]:
    return [
        Arrival(
            at=int(line.timestamp * 1e6 / speed),
            prompt_tokens=min(max(1, line.input_length), PART_TOKENS * len(line.hash_ids)),
            output_tokens=max(1, line.output_length),
            parts=tuple(line.hash_ids),
        )
        for line in lines
    ]


def skewed(lines: list[Line], *, documents: int = 64, exponent: float = 1.1) -> list[Line]:
    """The same times and lengths, but the first half of each prompt is one of a few documents,
    chosen by Zipf's law.
    """
    rand = Random(7)
    weights = [1 / (rank + 1) ** exponent for rank in range(documents)]
    fresh = 1 << 40
    made = []
    for number, line in enumerate(lines):
        parts = len(line.hash_ids)
        document = rand.choices(range(documents), weights)[0]
        common = [(1 << 30) + document * 10_000 + part for part in range(parts // 2)]
        own = [fresh + number * 1000 + part for part in range(parts - len(common))]
        made.append(
            Line(line.timestamp, line.input_length, line.output_length, hash_ids=common + own)
        )
    return made


def scenario(size: Size, *, routing: Routing, pool: bool, context: int) -> Scenario:
    kv_mb = CELL_BYTES / BLOCK_TOKENS / (1 << 20)
    spec = ClusterSpec(
        routing=routing,
        replicas=size.hosts,
        hosts=size.hosts,
        blocks=size.local_tokens // BLOCK_TOKENS,
        slots=48,
        context_max=context,
        base_us=20_000.0,
        row_us=100.0,
        logit_us=20.0,
        pair_us=0.0001,
        layers=1,
        max_queued_jobs=1_000_000,
        max_waiting_tasks=1_000_000,
        step_floor_ms=5000.0,
        check_contents=False,
        speculation="off",
        pool_dram_mb=size.pool_tokens * kv_mb if pool else 0.0,
        value_tokens=PART_TOKENS,
    )
    return Scenario(
        name="peer_access",
        cluster=spec,
        workload=WorkloadSpec(prompt_max=1, output_max=1),
        network=NetworkSpec(
            scale_out_mb=1000 * LINK_GB / KV_SCALE, scale_up_mb=1000 * BUS_GB / KV_SCALE
        ),
        quiet_after_s=36_000.0,
    )


class Counts:
    """What facts of executors add up to."""

    def __init__(self) -> None:
        self.prompt = 0.0
        self.cached = 0.0
        self.fetched_bytes = 0.0

    def look(self, _: object, __: object, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Fact):
                continue
            values = dict(effect.values)
            if effect.name == "task.finished":
                self.prompt += values["prompt_tokens"]
                self.cached += values["cached_tokens"]
            elif effect.name == "kv.moved":
                self.fetched_bytes += values["bytes"]


def play(trace: list[Arrival], plan: Scenario) -> Outcome:
    """Run a trace to its end."""
    run = Run(plan, 1, trace=trace, part_tokens=PART_TOKENS)
    counts = Counts()
    run.world.after_turn.append(counts.look)
    run.go()
    clients = run.clients
    if not isinstance(clients, TraceClients):
        raise TypeError
    ends = clients.ended_ns
    last = int(len(ends) * ENDED_PART)
    seconds = (ends[last - 1] - trace[0].at) / 1e9
    tokens = sum(one.prompt_tokens + one.output_tokens for one in trace)
    firsts = sorted(clients.first_tokens_ns)
    return Outcome(
        requests_per_s=last / seconds,
        tokens_per_s=tokens * ENDED_PART / seconds,
        first_token_s=firsts[len(firsts) // 2] / 1e9,
        hit=counts.cached / counts.prompt,
        pooled=counts.fetched_bytes * BLOCK_TOKENS / CELL_BYTES / counts.prompt,
    )


PLANS: Mapping[str, tuple[Routing, bool]] = {
    "affinity, no pool": ("prefix_affinity", False),
    "affinity, pool": ("prefix_affinity", True),
    "least load, no pool": ("least_load", False),
    "least load, pool": ("least_load", True),
}


def compare(lines: list[Line], size: Size, *, title: str, command: str) -> Table:
    """One row for each way of routing, with and without a pool."""
    trace = arrivals(lines, size.speed)
    context = 16 * -(-max(one.prompt_tokens + one.output_tokens + 1 for one in trace) // 16)
    rows, outcomes = [], {}
    for name, (routing, pool) in PLANS.items():
        began = time.perf_counter()
        one = play(trace, scenario(size, routing=routing, pool=pool, context=context))
        outcomes[name] = one
        took = time.perf_counter() - began
        click.echo(f"... {title}: {name}: {one} took {took:.0f} s", err=True)
        rows.append(
            (
                name,
                one.requests_per_s,
                one.tokens_per_s / 1000,
                one.first_token_s,
                100 * one.hit,
                100 * one.pooled,
            )
        )
    least, best = outcomes["least load, pool"], outcomes["affinity, no pool"]
    share = least.requests_per_s / best.requests_per_s
    return Table(
        title=title,
        command=command,
        columns=("routing", "requests/s", "1000 tokens/s", "first token s", "hit %", "pool %"),
        rows=rows,
        bars=(Bar(what="of affinity's", value=share, bound=PEER_BAR, at_least=True),),
    )


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, exists=True))
@click.option("--requests", default=1_000_000, help="At most so many.")
@click.option("--hosts", default=32, show_default=True)
@click.option("--speed", default=8.0, show_default=True, help="Times pass so much faster.")
@click.option("--only", type=click.Choice(("skewed", "recorded")), help="This part alone.")
def main(trace: Path, requests: int, hosts: int, *, speed: float, only: str | None) -> None:
    """Replay a trace with each way of routing."""
    lines = read_trace(trace, requests)
    size = Size(hosts=hosts, speed=speed)
    command = f"python -m benchmarks.peer_access {trace.name} --hosts {hosts} --speed {speed:g}"
    click.echo("\n".join([*heading(), ""]))
    parts = {"skewed": skewed(lines[:SKEWED_MAX]), "recorded": lines}
    for name, played in parts.items():
        if only not in (None, name):
            continue
        title = f"{TITLES[name]}: {len(played)} requests, {hosts} hosts"
        table = compare(played, size, title=title, command=command)
        click.echo("\n".join(table.lines()))


if __name__ == "__main__":
    main()
