"""A house that grows busy: 1 to 256 streams at once, and long prompts among 32 streams.

Both through `tercet serve`. Growth: closed loops; throughput may not fall by more than a tenth from
its peak. Prefills: 32 streams decode while prompts of 1,024 tokens arrive; the inter-token p99
stays within three times the median.
"""

from random import Random

from benchmarks.peers.drivers.worker import VOCAB
from benchmarks.peers.loads import offered, requests_of
from benchmarks.report import Bar, Table
from tercet.bench.records import RequestRecord, distribution
from tercet.bench.workload import Lengths, random_requests, with_arrivals

STREAMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GROWING = Lengths(prompt=128, output=64)
DECODING = Lengths(prompt=128, output=384)
ARRIVING = Lengths(prompt=1024, output=4)
ARRIVALS, ARRIVAL_RATE = 12, 0.75


def growth(url: str, command: str) -> Table:
    """Tokens a second of closed loops with more and more streams."""
    rates = {}
    rows: list[tuple[str | float, ...]] = []
    for streams in STREAMS:
        requests = requests_of(streams, GROWING, max(8, 2 * streams))
        summary, _ = offered(url, requests, streams)
        rates[streams] = summary.output_tokens_per_s
        itl = summary.itl_ms
        shown = (itl.p50, itl.p95, itl.p99) if itl else ("", "", "")
        rows.append((f"{streams}", rates[streams], *shown, summary.num_failed))
    worst = min(
        rates[later] / max(rates[former] for former in STREAMS if former <= later)
        for later in STREAMS
    )
    return Table(
        title="A growing load",
        command=command,
        columns=("streams", "tokens/s", "between tokens p50, ms", "p95", "p99", "failed"),
        rows=rows,
        bars=(Bar(what="least share of the peak before", value=worst, bound=0.9, at_least=True),),
        note=(
            f"Closed loops, prompts of {GROWING.prompt} random tokens, {GROWING.output} new ones, "
            "prompts' time counted."
        ),
    )


def prefills_among_streams(url: str, command: str) -> Table:
    """The gaps between tokens of 32 streams while long prompts arrive."""
    streams = random_requests(count=32, lengths=DECODING, vocab=VOCAB, rand=Random(7))
    prompts = random_requests(count=ARRIVALS, lengths=ARRIVING, vocab=VOCAB, rand=Random(8))
    arriving = with_arrivals(prompts, rate=ARRIVAL_RATE, burstiness=1.0, rand=Random(9))
    _, records = offered(url, [*streams, *arriving], None)
    gaps = distribution(gaps_after(records[:32], start=slowest_first(records[:32])))
    if gaps is None:
        raise RuntimeError("streams without gaps")
    return Table(
        title="32 streams while prompts of 1,024 tokens arrive",
        command=command,
        columns=("between tokens, ms", "p50", "p90", "p95", "p99", "max"),
        rows=(("the 32 streams", gaps.p50, gaps.p90, gaps.p95, gaps.p99, gaps.max),),
        bars=(Bar(what="p99 over the median", value=gaps.p99 / gaps.p50, bound=3, unit="x"),),
        note=(
            f"{ARRIVALS} prompts by Poisson, {ARRIVAL_RATE} a second; gaps from when all 32 "
            "streams had their first token."
        ),
    )


def slowest_first(records: list[RequestRecord]) -> int:
    """When the last of the streams had its first token."""
    return max(record.arrivals_ns[0] for record in records if record.arrivals_ns)


def gaps_after(records: list[RequestRecord], *, start: int) -> list[float]:
    """Milliseconds between neighbouring tokens of a stream, later than `start`."""
    return [
        (later - former) / 1e6
        for record in records
        for former, later in zip(record.arrivals_ns, record.arrivals_ns[1:], strict=False)
        if former >= start
    ]
