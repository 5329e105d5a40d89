"""Other people's chats: the Azure conversation trace against a simulated accelerator."""

from pathlib import Path
from random import Random

import uvloop

from benchmarks.report import Table, skipped
from benchmarks.trees import serving
from tercet.bench.client import Target, run_load
from tercet.bench.records import Distribution, Summary, summarize
from tercet.bench.traces import Replay, trace_requests

TITLE = "Azure conversation trace (2023) on a simulated accelerator"
COMMAND = "python -m benchmarks --only trace --data FOLDER"
FILE = "azure_2023_conv.csv.gz"
COUNT = 150
SPEED = 2.0
CONTEXT_MAX = 8192
VOCAB = 49_152
ACCELERATOR = {"flops_per_s": 4e14, "bytes_per_s": 3e12, "step_ns": 5e6}
"""Of the size of an H100, with the time of a larger model's step."""


def trace(data: Path | None) -> Table:
    """Replay the trace's first minute at twice its speed."""
    path = None if data is None else next(iter(sorted(data.rglob(FILE))), None)
    if path is None:
        where = "no folder was given (--data, DATA=)" if data is None else f"no {FILE} in {data}"
        return skipped(TITLE, COMMAND, where)
    replay = Replay(count=COUNT, speed=SPEED, context_max=CONTEXT_MAX)
    requests = trace_requests(path, replay, vocab=VOCAB, rand=Random(1))
    options = [
        part for key, value in ACCELERATOR.items() for part in ("--set", f"cost.{key}={value}")
    ]
    with serving(["smollm2", "--device", "cost", "--log-level", "warning", *options]) as served:
        target = Target(url=served.url, model="smollm2")
        records, duration = uvloop.run(
            run_load(target, requests, concurrency=None, progress=lambda _: None)
        )
    summary = summarize(records, duration_ns=duration)
    return Table(
        title=TITLE,
        command=COMMAND,
        columns=("milliseconds", "mean", "p50", "p90", "p95", "p99", "max"),
        rows=[
            _row("time to first token", summary.ttft_ms),
            _row("time per output token", summary.tpot_ms),
            _row("between tokens", summary.itl_ms),
            _row("whole request", summary.e2el_ms),
        ],
        note=f"{_sentence(summary)} {_accelerator()}",
    )


def _sentence(summary: Summary) -> str:
    return (
        f"{summary.num_requests} requests ({summary.num_failed} failed), "
        f"{summary.prompt_tokens:,} prompt and {summary.output_tokens:,} output tokens in "
        f"{summary.duration_s:.1f} s, at most {summary.peak_concurrency} at once: "
        f"{summary.output_tokens_per_s:,.0f} output tokens/s. Times are the trace's at "
        f"{SPEED:g}x, prompts are random tokens."
    )


def _accelerator() -> str:
    settings = ", ".join(f"cost.{key}={value:g}" for key, value in ACCELERATOR.items())
    return f"`tercet serve smollm2 --device cost` with {settings}: a step really takes its time."


def _row(name: str, values: Distribution | None) -> tuple[str | float, ...]:
    if values is None:
        return name, *("-" for _ in range(6))
    return name, values.mean, values.p50, values.p90, values.p95, values.p99, values.max
