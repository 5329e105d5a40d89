"""Servers under a mixed load: 16 streams at most, Poisson arrivals, prompts of 512 tokens.

A closed loop of 16 streams finds what a server can do; arrivals at shares of that find its best
rate: the one at which it gives most tokens a second. Every server is driven by the same client.
"""

from collections.abc import Sequence
from random import Random

import uvloop

from benchmarks.peers.drivers.worker import VOCAB
from benchmarks.peers.results import Load
from tercet.bench.client import Target, run_load, served_model
from tercet.bench.records import RequestRecord, Summary, summarize
from tercet.bench.workload import BenchRequest, Lengths, random_requests, with_arrivals

STREAMS = 16
PROMPT, OUTPUT = 512, 128
REQUESTS = 48
SHARES = (0.7, 0.85, 1.0)
"""Of the closed loop's requests a second."""


def ladder(system: str, url: str, turn: int) -> list[Load]:
    """The closed loop and every share of it."""
    warm(url)
    closed = one_load(system, url, turn, rate=0.0)
    if closed.failed:
        raise RuntimeError(f"{closed.failed} of {REQUESTS} requests failed")
    rate = closed.tokens_per_s / OUTPUT
    return [closed, *(one_load(system, url, turn, rate=share * rate) for share in SHARES)]


def one_load(system: str, url: str, turn: int, *, rate: float) -> Load:
    """Offer so many requests a second; 0: as fast as 16 places allow."""
    requests = requests_of(turn, Lengths(prompt=PROMPT, output=OUTPUT), REQUESTS)
    if rate:
        requests = with_arrivals(requests, rate=rate, burstiness=1.0, rand=Random(turn))
    summary, _ = offered(url, requests, STREAMS)
    return of_summary(summary, system=system, turn=turn, rate=rate)


def of_summary(summary: Summary, *, system: str, turn: int, rate: float) -> Load:
    """What matters of it; infinite where no request ended well."""
    ttft, itl = summary.ttft_ms, summary.itl_ms
    return Load(
        system=system,
        turn=turn,
        rate=rate,
        tokens_per_s=summary.output_tokens_per_s,
        ttft_p95_ms=ttft.p95 if ttft else 1e9,
        itl_p95_ms=itl.p95 if itl else 1e9,
        itl_p50_ms=itl.p50 if itl else 1e9,
        itl_p99_ms=itl.p99 if itl else 1e9,
        failed=summary.num_failed,
    )


def best(loads: Sequence[Load]) -> Load | None:
    """The load with most tokens a second among those that arrived by Poisson and all ended well."""
    good = [load for load in loads if load.rate and not load.failed]
    return max(good, key=lambda load: load.tokens_per_s, default=None)


def warm(url: str) -> None:
    """A few answers, so that nothing is done for the first time while times are taken."""
    offered(url, requests_of(99, Lengths(prompt=64, output=8), STREAMS), STREAMS)


def requests_of(seed: int, lengths: Lengths, count: int) -> list[BenchRequest]:
    """Random prompts, the same for every server."""
    return random_requests(count=count, lengths=lengths, vocab=VOCAB, rand=Random(1000 + seed))


def offered(
    url: str, requests: list[BenchRequest], concurrency: int | None
) -> tuple[Summary, list[RequestRecord]]:
    """Send the requests, wait for all; what it amounts to, and every record."""

    async def send() -> tuple[list[RequestRecord], int]:
        target = Target(url=url, model=await served_model(url, None))
        return await run_load(target, requests, concurrency=concurrency, progress=lambda _: None)

    records, duration = uvloop.run(send())
    return summarize(records, duration_ns=duration), records
