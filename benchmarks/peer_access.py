"""Does routing need affinity when every executor reaches every block? `python -m
benchmarks.peer_access TRACE`, in virtual time (docs/simulator.md), with the machines that serve.

TRACE is in Mooncake's form (benchmarks.mooncake). Its requests come in their order, so many open at
a time; the next one comes when one has ended: what ends in a second is what the executors can do.

Each host has one executor that prefills and decodes, and, with a pool, a share of it. A token's KV
is 4 KiB / 16 here instead of the some 300 KiB of a large model; links are slower by as much.
"""

import gc
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.kept import Kept
from benchmarks.machine import heading
from benchmarks.mooncake import PART_TOKENS, Line, conversations, read_trace, skewed
from benchmarks.report import Bar, Table
from tercet.base.ids import BLOCK_TOKENS
from tercet.job_executor.config import JobExecutorConfig, Routing
from tercet.messages.effects import Effect, Fact
from tercet.sim.arrivals import Arrival, TraceClients
from tercet.sim.memories import CELL_BYTES
from tercet.sim.run import Run
from tercet.sim.scenario import ClusterSpec, NetworkSpec, Scenario, WorkloadSpec
from tercet.sim.timeline import S

KV_SCALE = 1250
"""Bytes of a token's KV of a large model (320 KB) for one byte of ours."""
LINK_GB = 12.5
"""GB a second between two hosts in one direction: 100 Gbit/s."""
BUS_GB = 50.0
BEGIN_NS = 2 * S
"""All executors are ready by then."""
BOUNDS = {"recorded": 0.97, "skewed": 1.0}
TITLES = {"recorded": "As recorded", "skewed": "Popularity skewed"}
SKEWED_MAX = 4000
"""Requests of the skewed trace."""


@dataclass(frozen=True)
class Size:
    """What serves."""

    hosts: int
    num_open: int
    """Requests at a time, for each host."""
    local_tokens: int = 1 << 20
    """KV that an executor has room for."""
    pool_tokens: int = 2 << 20
    """KV that a host's share of the pool has room for."""


@dataclass(frozen=True)
class Outcome:
    requests_per_s: float
    tokens_per_s: float
    busy: float
    """Part of the time in which executors computed."""
    first_token_s: float
    """Median, queues included."""
    hit: float
    """Part of prompt tokens that were not computed."""
    pooled: float
    """Part of prompt tokens that came from the pool."""


def arrivals(lines: Iterable[Line]) -> list[Arrival]:
    return [
        Arrival(
            at=BEGIN_NS,
            prompt_tokens=min(max(1, line.input_length), PART_TOKENS * len(line.hash_ids)),
            output_tokens=max(1, line.output_length),
            parts=tuple(line.hash_ids),
        )
        for line in lines
    ]


def scenario(size: Size, *, routing: Routing, pool: bool, context: int) -> Scenario:
    kv_mb = CELL_BYTES / BLOCK_TOKENS / (1 << 20)
    spec = ClusterSpec(
        routing=routing,
        replicas=size.hosts,
        hosts=size.hosts,
        blocks=size.local_tokens // BLOCK_TOKENS,
        slots=64,
        context_max=context,
        base_us=20_000.0,
        row_us=100.0,
        logit_us=20.0,
        pair_us=0.0001,
        layers=1,
        max_queued_jobs=1_000_000,
        max_waiting_tasks=1_000_000,
        max_tasks_per_executor=JobExecutorConfig().max_tasks_per_executor,
        step_floor_ms=5000.0,
        check_contents=False,
        speculation="off",
        pool_dram_mb=size.pool_tokens * kv_mb if pool else 0.0,
        value_tokens=PART_TOKENS,
    )
    return Scenario(
        name="peer_access",
        cluster=spec,
        workload=WorkloadSpec(prompt_max=1, output_max=1, stop_share=0.0, cancel_share=0.0),
        network=NetworkSpec(
            scale_out_mb=1000 * LINK_GB / KV_SCALE, scale_up_mb=1000 * BUS_GB / KV_SCALE
        ),
        quiet_after_s=36_000.0,
    )


class Counts:
    """What facts of executors add up to while so many requests are open."""

    def __init__(self, clients: TraceClients, steady: range) -> None:
        self._clients = clients
        self._steady = steady
        self.prompt = 0.0
        self.cached = 0.0
        self.values = 0.0
        self.step_s = 0.0

    def look(self, _: object, __: object, effects: list[Effect]) -> None:
        if len(self._clients.ended) not in self._steady:
            return
        for effect in effects:
            if not isinstance(effect, Fact):
                continue
            values = dict(effect.values)
            if effect.name == "task.finished":
                self.prompt += values["prompt_tokens"]
                self.cached += values["cached_tokens"]
            elif effect.name == "pool.hits":
                self.values += values["values"]
            elif effect.name == "step.done":
                self.step_s += values["duration_s"]


def play(trace: list[Arrival], plan: Scenario, num_open: int) -> Outcome:
    """Run a trace to its end; rates are of the time in which so many were open, from the first
    generation of requests that ended to the last request that came.
    """
    run = Run(plan, 1, trace=trace, part_tokens=PART_TOKENS, num_open=num_open)
    clients = run.clients
    if not isinstance(clients, TraceClients):
        raise TypeError
    steady = range(num_open, len(trace) - num_open)
    counts = Counts(clients, steady)
    run.world.after_turn.append(counts.look)
    run.go()
    first, last = clients.ended[steady.start - 1], clients.ended[steady.stop - 1]
    seconds = (last.at - first.at) / 1e9
    firsts = sorted(clients.first_tokens_ns)
    return Outcome(
        requests_per_s=len(steady) / seconds,
        tokens_per_s=(last.delivered - first.delivered) / seconds,
        busy=counts.step_s / seconds / plan.cluster.hosts,
        first_token_s=firsts[len(firsts) // 2] / 1e9,
        hit=counts.cached / counts.prompt,
        pooled=PART_TOKENS * counts.values / counts.prompt,
    )


PLANS: Mapping[str, tuple[Routing, bool]] = {
    "affinity, no pool": ("prefix_affinity", False),
    "affinity, pool": ("prefix_affinity", True),
    "least load, no pool": ("least_load", False),
    "least load, pool": ("least_load", True),
}


def bars(rates: Mapping[str, float], part: str) -> tuple[Bar, ...]:
    """Hold the least load with a pool to affinity, which knows of no pool or has one too."""
    least = rates["least load, pool"]
    return tuple(
        Bar(
            what=f"least load, pool, beside {best}",
            value=least / rates[best],
            bound=BOUNDS[part],
            at_least=True,
        )
        for best in ("affinity, no pool", "affinity, pool")
    )


def compare(
    lines: list[Line], size: Size, *, part: str, command: str, kept: Kept[Outcome]
) -> Table:
    """One row for each way of routing, with and without a pool."""
    trace = arrivals(lines)
    context = 16 * -(-max(one.prompt_tokens + one.output_tokens + 1 for one in trace) // 16)
    rows, rates = [], {}
    for name, (routing, pool) in PLANS.items():
        cell = f"{command}, {part}, {len(lines)} requests: {name}"
        one = kept.get(cell)
        if one is None:
            began = time.perf_counter()
            plan = scenario(size, routing=routing, pool=pool, context=context)
            one = play(trace, plan, size.hosts * size.num_open)
            kept.put(cell, one)
            took = time.perf_counter() - began
            click.echo(f"... {part}: {name}: {one} took {took:.0f} s", err=True)
            gc.collect()
        rates[name] = one.tokens_per_s
        rows.append(
            (
                name,
                one.requests_per_s,
                one.tokens_per_s / 1000,
                100 * one.busy,
                one.first_token_s,
                100 * one.hit,
                100 * one.pooled,
            )
        )
    return Table(
        title=f"{TITLES[part]}: {len(lines)} requests, {size.hosts} hosts",
        command=command,
        columns=(
            "routing",
            "requests/s",
            "1000 tokens/s",
            "busy %",
            "first token s",
            "hit %",
            "pool %",
        ),
        rows=rows,
        bars=bars(rates, part),
    )


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, exists=True))
@click.option("--every", default=1, show_default=True, help="One conversation of so many.")
@click.option("--hosts", default=32, show_default=True)
@click.option("--open", "num_open", default=48, show_default=True, help="Requests, for each host.")
@click.option("--only", type=click.Choice(tuple(TITLES)), help="This part alone.")
@click.option("--keep", type=click.Path(path_type=Path), help="A file of outcomes, to go on from.")
def main(
    trace: Path, every: int, hosts: int, num_open: int, *, only: str | None, keep: Path | None
) -> None:
    """Replay a trace with each way of routing."""
    gc.disable()  # millions of nodes that live to the end are not to be looked through
    lines = conversations(read_trace(trace, 1_000_000), every)
    size = Size(hosts=hosts, num_open=num_open)
    command = f"python -m benchmarks.peer_access {trace.name} --hosts {hosts} --open {num_open}"
    command += f" --every {every}" if every > 1 else ""
    click.echo("\n".join([*heading(), ""]))
    parts = {"skewed": skewed(lines[:SKEWED_MAX]), "recorded": lines}
    for part, played in parts.items():
        if only in (None, part):
            kept = Kept(keep, Outcome)
            table = compare(played, size, part=part, command=command, kept=kept)
            click.echo("\n".join(table.lines()))


if __name__ == "__main__":
    main()
