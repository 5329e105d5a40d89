"""`tercet bench serve`: load a server, print percentiles, write JSON."""

from pathlib import Path
from random import Random

import click
import msgspec
import uvloop
from tqdm import tqdm

from tercet.base.errors import Invalid
from tercet.bench.client import Target, run_load, served_model
from tercet.bench.records import Distribution, Objective, Summary, summarize
from tercet.bench.traces import Replay, trace_requests
from tercet.bench.workload import (
    BenchRequest,
    Lengths,
    file_requests,
    random_requests,
    with_arrivals,
)

REASONS_MAX = 5
"""Shown of why requests failed; the JSON has all."""


@click.group()
def command() -> None:
    """Measure a server under load."""


@command.command()
@click.option("--url", "--base-url", default="http://127.0.0.1:8000", show_default=True)
@click.option("--model", help="Model id; the first that the server lists if absent.")
@click.option("--api-key", envvar="TERCET_API_KEY", help="Key of the server.")
@click.option("--num-prompts", default=100, show_default=True, type=click.IntRange(1))
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help="Prompts from a file (.jsonl or text, may be .gz) instead of random tokens.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Times and lengths from a trace (Azure's CSV, may be .gz), prompts of random tokens.",
)
@click.option(
    "--trace-speed",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Play the trace so many times faster.",
)
@click.option(
    "--context-max", type=click.IntRange(2), help="Cut a trace's longer requests to this."
)
@click.option("--input-len", default=256, show_default=True, type=click.IntRange(1))
@click.option("--output-len", default=64, show_default=True, type=click.IntRange(1))
@click.option("--length-spread", default=0.0, show_default=True, type=click.FloatRange(0, 1))
@click.option(
    "--shared-prefix",
    default=0,
    type=click.IntRange(0),
    help="Tokens that all random prompts begin with.",
)
@click.option(
    "--vocab",
    default=32000,
    show_default=True,
    type=click.IntRange(2),
    help="Random ids lie below.",
)
@click.option(
    "--request-rate", type=click.FloatRange(0, min_open=True), help="Open loop: requests a second."
)
@click.option(
    "--burstiness",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="1: Poisson; below: bursts; above: even.",
)
@click.option("--max-concurrency", type=click.IntRange(1), help="Closed loop: so many at a time.")
@click.option(
    "--goodput",
    multiple=True,
    metavar="NAME:MS",
    help="Bound of a good request: ttft, tpot or e2el, e.g. ttft:1000.",
)
@click.option(
    "--stop-at-end/--ignore-eos",
    default=False,
    help="Let outputs end by themselves, or always take --output-len tokens.",
)
@click.option("--seed", default=1, show_default=True)
@click.option("--output-json", type=click.Path(path_type=Path), help="Write the summary here.")
def serve(**options: object) -> None:
    """Load an OpenAI-compatible server and report TTFT, TPOT, ITL, latency and goodput."""
    given = msgspec.convert(options, Options)
    requests = given.requests()
    objective = given.objective()
    model = given.model or uvloop.run(served_model(given.url, given.api_key))
    target = Target(
        url=given.url,
        model=model,
        api_key=given.api_key,
        ignore_eos=not given.stop_at_end,
    )
    with tqdm(total=len(requests), unit="request", leave=False) as bar:
        records, duration = uvloop.run(
            run_load(
                target,
                requests,
                concurrency=given.max_concurrency,
                progress=bar.update,
            ),
        )
    summary = summarize(records, duration_ns=duration, objective=objective)
    click.echo(show(summary))
    if given.output_json:
        given.output_json.write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
    if summary.num_failed == summary.num_requests:
        raise Invalid(f"every request failed: {next(iter(_reasons(summary)), 'no reason')}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tercet bench serve`, as click parsed them."""

    url: str
    model: str | None
    api_key: str | None
    num_prompts: int
    dataset: Path | None
    trace: Path | None
    trace_speed: float
    context_max: int | None
    input_len: int
    output_len: int
    length_spread: float
    shared_prefix: int
    vocab: int
    request_rate: float | None
    burstiness: float
    max_concurrency: int | None
    goodput: tuple[str, ...]
    stop_at_end: bool
    seed: int
    output_json: Path | None

    def requests(self) -> list[BenchRequest]:
        rand = Random(self.seed)
        if self.trace:
            replay = Replay(
                count=self.num_prompts, speed=self.trace_speed, context_max=self.context_max
            )
            return trace_requests(self.trace, replay, vocab=self.vocab, rand=rand)
        if self.dataset:
            made = file_requests(
                self.dataset, count=self.num_prompts, output_tokens=self.output_len
            )
        else:
            made = random_requests(
                count=self.num_prompts,
                lengths=Lengths(
                    prompt=self.input_len,
                    output=self.output_len,
                    spread=self.length_spread,
                ),
                vocab=self.vocab,
                rand=rand,
                shared_prefix=self.shared_prefix,
            )
        if self.request_rate is None:
            return made
        return with_arrivals(made, rate=self.request_rate, burstiness=self.burstiness, rand=rand)

    def objective(self) -> Objective | None:
        if not self.goodput:
            return None
        bounds: dict[str, float] = {}
        for text in self.goodput:
            name, _, value = text.partition(":")
            if name not in Objective.__struct_fields__ or not _is_number(value):
                raise Invalid(
                    f"--goodput {text!r} is not NAME:MS with a name of ttft, tpot, e2el",
                    parameter="goodput",
                )
            bounds[name] = float(value)
        return Objective(**bounds)


def show(summary: Summary) -> str:
    """The summary as a table for a terminal."""
    lines = [
        f"requests         {summary.num_requests} ({summary.num_failed} failed)",
        f"duration         {summary.duration_s:.2f} s, at most {summary.peak_concurrency} at once",
        f"requests/s       {summary.requests_per_s:.2f}",
        f"output tokens/s  {summary.output_tokens_per_s:.1f}",
        f"total tokens/s   {summary.total_tokens_per_s:.1f}",
        "",
        "milliseconds         mean      p50      p90      p95      p99      max",
        _row("TTFT", summary.ttft_ms),
        _row("TPOT", summary.tpot_ms),
        _row("ITL", summary.itl_ms),
        _row("latency", summary.e2el_ms),
    ]
    if summary.goodput_requests_per_s is not None:
        lines += ["", f"goodput          {summary.goodput_requests_per_s:.2f} requests/s"]
    lines += [f"failed: {summary.errors[one]} x {one}" for one in _reasons(summary)[:REASONS_MAX]]
    return "\n".join(lines)


def _reasons(summary: Summary) -> list[str]:
    """Why requests failed, the most frequent first."""
    return sorted(summary.errors, key=lambda reason: -summary.errors[reason])


def _row(name: str, values: Distribution | None) -> str:
    if values is None:
        return f"{name:<16}         -"
    row = (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
    return f"{name:<16}" + "".join(f"{value:9.2f}" for value in row)


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
