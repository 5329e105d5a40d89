"""Does routing need affinity when every executor reaches every block? `python -m
benchmarks.peer_access_real TRACE`, for real: three hosts of `tercet cluster local`, SmolLM2,
requests over HTTP.

TRACE is in Mooncake's form (benchmarks.mooncake). Every 16th conversation of it is played, lengths
divided by 16, so that a part of 512 tokens is one of 32 and everything fits the model. So many
requests are open at a time, two for each executor; the next one is sent when one has ended: what
ends in a second is what the executors can do. In a sample the turns of a conversation come closer
to each other: were many more open, a turn would wait beside the one before it, and nothing would be
there to be found. A plan's hosts are started anew and know nothing; joining is not measured.

One thread an executor. All three share this machine's cores with the front, the agents and the
client, so CPU seconds of a request are shown beside its share of the clock.
"""

import json
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import click
import uvloop

from benchmarks.kept import Kept
from benchmarks.machine import heading
from benchmarks.mooncake import PART_TOKENS, Line, conversations, read_trace, skewed
from benchmarks.peer_access import PLANS, TITLES, bars
from benchmarks.report import Table, middle
from benchmarks.trees import Served, serving
from tercet.bench.client import Target, run_load
from tercet.bench.records import RequestRecord
from tercet.bench.workload import BenchRequest, random_tokens

SHRUNK = 16
VALUE_TOKENS = PART_TOKENS // SHRUNK
CONTEXT_MAX = 8192
VOCAB = 49_000
HOSTS = 3
JOIN_S = 120.0
TRIES = 3
ARENA_BYTES = 552 << 20
"""Of each executor: 24,000 tokens of KV, half of them those of requests that run."""
POOL_BYTES = 1536 << 20
"""Of each host: 68,000 tokens."""


@dataclass(frozen=True)
class Outcome:
    requests_per_s: float
    tokens_per_s: float
    cpu_s: float
    """Of all processes, of a request."""
    cores: float
    """That they used."""
    first_token_s: float
    hit: float
    """Part of prompt tokens that were not computed."""
    pooled: float
    """Part of prompt tokens that came from the pool."""


def requests_of(lines: Sequence[Line]) -> list[BenchRequest]:
    """Prompts of made-up tokens: equal where the trace says that they are."""
    made = []
    for line in lines:
        output = max(1, line.output_length // SHRUNK)
        whole = [token for part in line.hash_ids for token in part_tokens(part)]
        length = min(max(1, line.input_length // SHRUNK), CONTEXT_MAX - output - 1)
        made.append(BenchRequest(prompt=tuple(whole[:length]), max_tokens=output))
    return made


@cache
def part_tokens(part: int) -> tuple[int, ...]:
    return random_tokens(VALUE_TOKENS, vocab=VOCAB, rand=Random(part))


def play(served: Served, requests: list[BenchRequest], num_open: int) -> Outcome:
    """Send them all; rates are of the time in which so many were open, from the first ended
    generation of requests to the last request that was sent.
    """
    processes, spent = sorted(served.processes()), sum(served.cpu_seconds().values())
    began = time.perf_counter()
    target = Target(url=served.url, model="smollm2")
    records, _ = uvloop.run(
        run_load(target, requests, concurrency=num_open, progress=lambda _: None)
    )
    took = time.perf_counter() - began
    cpu = sum(served.cpu_seconds().values()) - spent
    failed = [record.error for record in records if not record.ok]
    if failed:
        raise RuntimeError(f"{len(failed)} requests failed, one of them: {failed[0]}")
    rate, tokens = steady(records, num_open)
    if sorted(served.processes()) != processes:
        raise RuntimeError("processes died meanwhile")
    counters = counted(served)
    return Outcome(
        requests_per_s=rate,
        tokens_per_s=tokens,
        cpu_s=cpu / len(requests),
        cores=cpu / took,
        first_token_s=middle([record.ttft_ms / 1000 for record in records]),
        hit=counters.cached / counters.asked,
        pooled=counters.pooled / counters.asked,
    )


def steady(records: Sequence[RequestRecord], num_open: int) -> tuple[float, float]:
    """Give requests and tokens a second between the ends of the first and the last generation."""
    ended = sorted(records, key=lambda record: record.ended_ns)
    first, last = num_open - 1, len(ended) - num_open - 1
    seconds = (ended[last].ended_ns - ended[first].ended_ns) / 1e9
    inside = ended[first + 1 : last + 1]
    tokens = sum(record.prompt_tokens + record.output_tokens for record in inside)
    return len(inside) / seconds, tokens / seconds


class Counters(NamedTuple):
    """Prompt tokens that a server was asked for so far, and those that were somewhere."""

    asked: float
    cached: float
    pooled: float


def counted(served: Served) -> Counters:
    """Read them from its metrics."""
    with urllib.request.urlopen(f"{served.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return Counters(
        asked=_sum(lines, "tercet:prefix_cache_queries_total"),
        cached=_sum(lines, "tercet:prefix_cache_hits_total"),
        pooled=VALUE_TOKENS * _sum(lines, "tercet:pool_hits_total"),
    )


def _sum(lines: Sequence[str], name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@contextmanager
def cluster(routing: str, *, pool: bool) -> Iterator[Served]:
    """Three hosts with an executor each, all ready."""
    arguments = ["smollm2", "--quantization", "int8", "--speculation", "off"]
    arguments += ["--colocated", str(HOSTS), "--threads", "1"]
    arguments += ["--kv-cache-memory-bytes", str(ARENA_BYTES), "--log-level", "warning"]
    arguments += ["--set", f"job_executor.routing={routing}"]
    # Who else wants the cores may stop an executor for longer than a watch would bear.
    arguments += ["--set", "node_agent.progress_floor_s=60"]
    if pool:
        arguments += ["--pool-dram", str(POOL_BYTES), "--set", f"pool.value_tokens={VALUE_TOKENS}"]
    with serving(arguments, command=("cluster", "local", "--hosts", str(HOSTS))) as served:
        deadline = time.monotonic() + JOIN_S
        while not _whole(served):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{HOSTS} hosts did not come together within {JOIN_S:g} s")
            time.sleep(0.2)
        yield served


def _whole(served: Served) -> bool:
    with urllib.request.urlopen(f"{served.url}/tercet/status", timeout=10) as answer:
        status: dict[str, Any] = json.load(answer)
    ready = [one for one in status["executors"] if one["state"] == "ready" and one["connected"]]
    places = {one["host"] for one in ready}
    return len(status["hosts"]) == len(places) == len(ready) == HOSTS


def measured(name: str, requests: list[BenchRequest], num_open: int) -> Outcome:
    """One plan on hosts of its own; again where a busy machine broke it."""
    routing, pool = PLANS[name]
    for _ in range(TRIES):
        try:
            with cluster(routing, pool=pool) as served:
                return play(served, requests, num_open)
        except RuntimeError as error:
            click.echo(f"... {name}: {error}", err=True)
    raise RuntimeError(f"{name} could not be measured in {TRIES} tries")


def compare(
    lines: list[Line], num_open: int, rounds: int, *, part: str, command: str, kept: Kept[Outcome]
) -> Table:
    """One row for each way of routing, with and without a pool; rounds in turn, medians."""
    requests = requests_of(lines)
    found: dict[str, list[Outcome]] = {name: [] for name in PLANS}
    for number in range(rounds):
        for name in list(PLANS)[:: -1 if number % 2 else 1]:
            cell = f"{command}, {part}, round {number}: {name}"
            one = kept.get(cell)
            if one is None:
                one = measured(name, requests, num_open)
                kept.put(cell, one)
                click.echo(f"... {part}: {name}: {one}", err=True)
            found[name].append(one)
    rows: list[Sequence[str | float]] = []
    for name, outcomes in found.items():

        def median_of(field: str, outcomes: list[Outcome] = outcomes) -> float:
            return middle([getattr(one, field) for one in outcomes])

        rows.append(
            (
                name,
                median_of("requests_per_s"),
                median_of("tokens_per_s"),
                median_of("cpu_s"),
                median_of("cores"),
                median_of("first_token_s"),
                100 * median_of("hit"),
                100 * median_of("pooled"),
            )
        )
    rates = {name: middle([one.tokens_per_s for one in ones]) for name, ones in found.items()}
    prompt = sum(len(one.prompt) for one in requests)
    output = sum(one.max_tokens for one in requests)
    return Table(
        title=f"{TITLES[part]}: {len(requests)} requests, {HOSTS} hosts",
        command=command,
        columns=(
            "routing",
            "requests/s",
            "tokens/s",
            "CPU s a request",
            "cores",
            "first token s",
            "hit %",
            "pool %",
        ),
        rows=rows,
        bars=bars(rates, part),
        note=(
            f"{prompt:,} prompt and {output:,} output tokens, {num_open} requests open at a time; "
            f"{ARENA_BYTES >> 20} MiB of KV an executor, {POOL_BYTES >> 20} MiB of pool a host."
        ),
    )


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, exists=True))
@click.option("--every", default=16, show_default=True, help="One conversation of so many.")
@click.option("--open", "num_open", default=6, show_default=True, help="Requests at a time.")
@click.option("--rounds", default=1, show_default=True)
@click.option("--only", type=click.Choice(tuple(TITLES)), help="This part alone.")
@click.option("--keep", type=click.Path(path_type=Path), help="A file of outcomes, to go on from.")
def main(
    trace: Path, every: int, *, num_open: int, rounds: int, only: str | None, keep: Path | None
) -> None:
    """Replay a part of a trace with each way of routing."""
    lines = conversations(read_trace(trace, 1_000_000), every)
    command = (
        f"python -m benchmarks.peer_access_real {trace.name} --every {every} --open {num_open}"
    )
    click.echo("\n".join([*heading(), ""]))
    for part, played in {"skewed": skewed(lines), "recorded": lines}.items():
        if only in (None, part):
            kept = Kept(keep, Outcome)
            table = compare(played, num_open, rounds, part=part, command=command, kept=kept)
            click.echo("\n".join(table.lines()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    main()
