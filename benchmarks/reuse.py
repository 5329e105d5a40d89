"""What reuse of cached prefixes gives, by where the prefix lies: prompts of 4,096 tokens.

    base prompt    |====================== 4,096 ======================|    computed, stored
    other prompt   |xxxxxxxxxxxxxxxxxxxxxxx 4,096 xxxxxxxxxxxxxxxxxxxxx|    drives it from the arena
    measured       |====== share =====|............ new ...............|    from its source

The ideal is a prompt of which as many tokens lie in the executor's own blocks: only what must be
computed is computed. Everything beyond it is the price of the way from elsewhere. A pool keeps
values of 128 tokens, so that of 3,686 tokens 3,584 come from it and 3,680 from own blocks.
"""

import http.client
import json
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.machine import heading
from benchmarks.report import Bar, Table, middle
from benchmarks.trees import Served, serving

RESULTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "reuse.md"
TOKENS = 4096
SHARES = (0.125, 0.5, 0.9)
IDEAL_SHARES = (0.125, 0.5, 0.875, 0.9)
"""87.5 % is what 90 % are in whole values of a pool."""
VOCAB = 49_000
BAR = 0.85
OWN = "own blocks (ideal)"
ONE_THREAD = "own blocks, one thread (ideal)"
HOSTS = 4
JOIN_S = 60.0
SETTLE_S = 1.0
"""A prompt is stored within this, beside its answer."""
SEED_THROUGHPUT = {0.5: 1.42, 0.9: 2.28}
SEED_FIRST = {0.5: -34.0, 0.9: -59.0}
"""CloudMatrix-Infer, section 5.4: context caching over the UB plane, beside no cache at all."""


@dataclass(frozen=True)
class Source:
    """One place that prefixes come from."""

    name: str
    arguments: Sequence[str]
    evict: bool
    """Drive the prefix from the arena before it is used again."""
    ideal: str = OWN
    """What it is held to: the same threads, the prefix in the executor's own blocks."""
    hosts: int = 1
    """Of one machine, joined over TCP; one of them has the executor, each a share of the pool."""


def one_context() -> list[str]:
    """An arena with room for one prompt and little more: the next prompt drives out the last."""
    return ["--context-max", str(TOKENS + 256), "--set", "runtime.memory_fraction=0.3"]


@dataclass(frozen=True)
class Times:
    cold_s: float
    reused_s: float
    cached_tokens: int


@click.command()
@click.option("--runs", default=5, show_default=True)
@click.option("--block-bytes", default=368_640, show_default=True, help="Of the model's KV blocks.")
@click.option("--only", multiple=True, help="Names of sources (repeat).")
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{RESULTS.name} too.")
def main(runs: int, block_bytes: int, only: tuple[str, ...], *, write: bool) -> None:
    """Measure reuse from every source, one tree after another."""
    arena = (TOKENS + 256) // 16 * block_bytes
    small = [*one_context(), "--kv-cache-memory-bytes", str(arena)]
    with tempfile.TemporaryDirectory() as folder:
        slab = Path(folder) / "slab"
        disk = ["--set", f"pool.disk_path={slab}", "--set", f"pool.disk_bytes={4 << 30}"]
        sources = [
            Source(OWN, [], evict=False),
            Source(ONE_THREAD, ["--threads", "1"], evict=False),
            Source("host pool, DRAM", [*small, "--set", f"pool.dram_bytes={3 << 30}"], evict=True),
            Source(
                "host pool, SSD",
                [*small, "--set", f"pool.dram_bytes={128 << 20}", *disk],
                evict=True,
            ),
            Source(
                f"pool, {HOSTS - 1} of {HOSTS} values on other hosts",
                [*small, "--colocated", "1", "--set", f"pool.dram_bytes={1 << 30}"],
                evict=True,
                hosts=HOSTS,
            ),
            Source(
                "prefill peer, by reference",
                ["--prefill", "1", "--decode", "1"],
                evict=False,
                ideal=ONE_THREAD,
            ),
            Source(
                "prefill peer, by request",
                ["--prefill", "1", "--decode", "1", "--set", "transfer.way=request"],
                evict=False,
                ideal=ONE_THREAD,
            ),
        ]
        ideals = {one.name: one.ideal for one in sources if one.name not in (OWN, ONE_THREAD)}
        found: dict[str, Mapping[float, Times]] = {}
        for source in sources:
            if only and source.name in ideals and not any(name in source.name for name in only):
                continue
            click.echo(f"... {source.name}", err=True)
            command = ("cluster", "local", "--hosts", str(source.hosts))
            with serving(
                ["smollm2", "--log-level", "warning", *source.arguments],
                command=command if source.hosts > 1 else ("serve",),
            ) as served:
                wait_for_hosts(served, source.hosts)
                shares = SHARES if source.name in ideals else IDEAL_SHARES
                found[source.name] = measure(served, source, shares, runs)
    lines = ["# Reuse of cached prefixes", "", *heading(), "", *table(found, ideals).lines()]
    click.echo("\n".join(lines))
    if write:
        RESULTS.write_text("\n".join(lines))


def wait_for_hosts(served: Served, count: int) -> None:
    """Until so many have joined with their shares."""
    until = time.monotonic() + JOIN_S
    while count > 1:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        connection.request("GET", "/tercet/status")
        hosts = json.loads(connection.getresponse().read())["hosts"]
        connection.close()
        if sum(host["pooled"] for host in hosts) == count:
            return
        if time.monotonic() > until:
            raise RuntimeError(f"{count} hosts did not join within {JOIN_S:g} s: {hosts}")
        time.sleep(0.2)


def measure(
    served: Served, source: Source, shares: Sequence[float], runs: int
) -> dict[float, Times]:
    """Medians over so many runs of each share."""
    rand = random.Random(source.name)
    first_token(served, prompt(rand, 256))
    out = {}
    for share in shares:
        cold, reused, cached = [], [], 0
        for _ in range(runs):
            base = prompt(rand, TOKENS)
            cold.append(first_token(served, base)[0])
            time.sleep(SETTLE_S)
            if source.evict:
                first_token(served, prompt(rand, TOKENS))
                time.sleep(SETTLE_S)
            kept = int(TOKENS * share)
            again = base[:kept] + prompt(rand, TOKENS - kept)
            seconds, cached = first_token(served, again)
            reused.append(seconds)
        out[share] = Times(middle(cold), middle(reused), cached)
    return out


def table(found: Mapping[str, Mapping[float, Times]], ideals: Mapping[str, str]) -> Table:
    """Rows by source and share; the bars hold every source to the ideal."""
    rows: list[Sequence[str | float]] = []
    bars = []
    for name, times in found.items():
        for share, one in times.items():
            ideal = _nearest(found[ideals.get(name, name)].values(), one.cached_tokens)
            quality = ideal.reused_s / one.reused_s
            rows.append(
                (
                    name,
                    f"{share:.1%}",
                    f"{one.cached_tokens:,}",
                    1000 * one.cold_s,
                    1000 * one.reused_s,
                    f"{one.cold_s / one.reused_s:.2f}x",
                    f"{100 * (one.reused_s / one.cold_s - 1):.0f} %",
                    f"{quality:.0%}",
                )
            )
            if name in ideals:
                what = f"{name}, {share:.1%} reused, of the ideal"
                bars.append(Bar(what=what, value=quality, bound=BAR, at_least=True))
    seeds = ", ".join(
        f"{share:.0%}: {SEED_THROUGHPUT[share]}x and {SEED_FIRST[share]:.0f} %"
        for share in SEED_THROUGHPUT
    )
    return Table(
        title="SmolLM2, prompts of 4,096 tokens, one at a time",
        command="python -m benchmarks.reuse --write",
        columns=(
            "source",
            "reused",
            "cached tokens",
            "nothing reused, ms",
            "first token, ms",
            "throughput",
            "first token",
            "of the ideal",
        ),
        rows=rows,
        bars=bars,
        note=(
            "First tokens of streamed answers, medians. The ideal has as many cached tokens; "
            "beyond 100 %: executors of the pool have an arena for one prompt, smaller and faster. "
            f"CloudMatrix-Infer says {seeds} beside no cache, on prompts of the same length "
            "(section 5.4); there as here attention of the rest over the whole is not saved."
        ),
    )


def _nearest(ideals: Iterable[Times], cached_tokens: int) -> Times:
    return min(ideals, key=lambda ideal: abs(ideal.cached_tokens - cached_tokens))


def prompt(rand: random.Random, tokens: int) -> list[int]:
    return [rand.randrange(1000, VOCAB) for _ in range(tokens)]


def first_token(served: Served, ids: list[int]) -> tuple[float, int]:
    """Seconds to the first token, and how many prompt tokens were cached, as the answer says."""
    body = {
        "model": "smollm2",
        "prompt": ids,
        "max_tokens": 2,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with _posted(served, body) as lines:
        began = time.perf_counter()
        first, cached = 0.0, 0
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter() - began
            usage = json.loads(line[6:]).get("usage")
            if usage:
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        if not first:
            raise RuntimeError("an answer without a token")
    return first, cached


@contextmanager
def _posted(served: Served, body: Mapping[str, object]) -> Iterator[Iterator[bytes]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    try:
        data = json.dumps(body).encode()
        connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
        yield _lines(connection)
    finally:
        connection.close()


def _lines(connection: http.client.HTTPConnection) -> Iterator[bytes]:
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read().decode())
    while line := response.readline():
        yield line


if __name__ == "__main__":
    main()
