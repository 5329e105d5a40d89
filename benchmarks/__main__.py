"""Runs the benchmarks and prints their tables; `make bench` calls it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import click

from benchmarks.front import front
from benchmarks.machine import CALM_LOAD, heading, load_sentence
from benchmarks.memory import memory
from benchmarks.overhead import overhead
from benchmarks.report import Table
from benchmarks.startup import startup
from benchmarks.throughput import throughput
from benchmarks.trace import trace
from tercet.base.errors import Invalid

RESULTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "serving.md"
NAMES = ("startup", "memory", "throughput", "overhead", "front", "trace")


@click.command()
@click.option("--data", default="", metavar="FOLDER", help="Where traces are; without: skipped.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="This part alone (repeat).")
@click.option("--venv", is_flag=True, help="Build a fresh environment to weigh it.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS.name} in docs/benchmarks too.")
def main(data: str, only: tuple[str, ...], *, venv: bool, write: bool) -> None:
    """Measure what the project promises, and say what holds."""
    os.chdir(Path(__file__).parents[1])
    parts: Mapping[str, Callable[[], Table]] = {
        "startup": partial(startup, venv=venv),
        "memory": memory,
        "throughput": throughput,
        "overhead": overhead,
        "front": front,
        "trace": partial(trace, Path(data).absolute() if data else None),
    }
    if os.getloadavg()[0] >= CALM_LOAD:
        click.echo(f"Other programs run: {load_sentence()}.", err=True)
    lines = ["# Serving SmolLM2 on a CPU", "", "Made by `python -m benchmarks --write`.", ""]
    lines += [*heading(), ""]
    click.echo("\n".join(lines))
    missed: list[str] = []
    for name in only or NAMES:
        began = time.perf_counter()
        click.echo(f"... {name}", err=True)
        table = parts[name]()
        more = table.lines()
        click.echo("\n".join(more))
        click.echo(f"... {name} took {time.perf_counter() - began:.0f} s", err=True)
        lines += more
        missed += [f"{name}: {bar.what}" for bar in table.bars if not bar.holds]
    summary = (
        f"Bars missed: {'; '.join(missed)}." if missed else "Every bar that was measured holds."
    )
    click.echo(summary)
    if write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text("\n".join([*lines, summary, ""]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    try:
        main()
    except (Invalid, RuntimeError) as error:
        sys.exit(f"benchmarks: {error}")
