"""`tercet explain cache`: from how many tokens on fetching beats computing, per source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from tercet.base.ids import BLOCK_TOKENS
from tercet.cli.ask import URL, ask
from tercet.cli.break_even import Computing, Way, break_even
from tercet.cli.compose import local_config, local_options
from tercet.messages.plan import StepCost
from tercet.runtime.config import TreeConfig

NUM_BLOCKS = 128
"""Enough to measure steps on."""
NAMES = {
    "dram": "this host's memory",
    "ssd": "this host's disk",
    "DRAM": "another host's memory",
    "SSD": "another host's disk",
}


class Row(Struct, frozen=True, kw_only=True):
    """One source of one executor, or of this machine."""

    executor: str
    way: Way
    pays_from: int | None
    """Tokens; none: never within the context, or nothing is known of computing."""
    known: bool
    """Whether something is known of computing."""


@click.command()
@click.argument("model", required=False)
@click.option("--disk", type=click.Path(path_type=Path), help="A folder to measure a disk in.")
@click.option("--url", metavar="URL", help=f"Ask a running server instead, as {URL}.")
@click.option("--api-key", envvar="TERCET_API_KEY", help="A key of the server.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@local_options
def command(
    model: str | None,
    disk: Path | None,
    url: str | None,
    api_key: str | None,
    *,
    as_json: bool,
    **options: object,
) -> None:
    """Measure what fetching keys and values takes here, and from how many tokens on it beats
    computing them with MODEL (opened for that). With --url: what a running server has learned.
    """
    if url is not None:
        rows = learned(ask(url, "/tercet/status", key=api_key))
        note = LEARNED if rows else "Nothing was fetched yet: there is nothing to tell."
    else:
        computing = None if model is None else computing_of(local_config(model, options))
        rows, note = measured(disk, computing), MEASURED
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
    else:
        click.echo("\n".join([*shown(rows), *([""] if rows else []), note]))


MEASURED = (
    "Measured just now by the wires of a server: another host over this machine's loopback. A\n"
    "server learns the whole way for itself, its agents' answers included (--url shows what)."
)
LEARNED = (
    "Learned from fetches: from the wish to the last byte. 'Pays from' is for an idle executor."
)


def measured(disk: Path | None, computing: Computing | None) -> list[Row]:
    """What this machine's copies take."""
    from tercet.cli.measured_ways import measured_ways  # sockets and threads: only for who measures

    return [_row("here", way, computing) for way in measured_ways(disk)]


def computing_of(config: TreeConfig) -> Computing:
    """Open the model and run a few steps of it."""
    from tercet.engine.build import build_engine, compile_model, kv_memory
    from tercet.runtime.opening import open_configured

    opened = open_configured(config, threads=config.runtime.threads)
    executable = compile_model(opened.model, opened.device, opened.options)
    shape = opened.model.shape
    form = opened.device.kv_form(opened.model.program, opened.options)
    memory = kv_memory(executable, NUM_BLOCKS, populate=False)
    engine = build_engine(executable, shape=shape, memory=memory, max_slots=1)
    return Computing(
        cost=engine.measure(),
        step_ns_max=config.scheduling.step_ns_max,
        bytes_per_token=form.block_bytes / BLOCK_TOKENS,
        context_max=min(shape.context_max, config.context_max or shape.context_max),
    )


def learned(status: Mapping[str, Any]) -> list[Row]:
    """What the executors of a server say of their sources."""
    rows: list[Row] = []
    for one in status["executors"]:
        costs = one.get("costs") or {}
        computing = _computing(costs) if costs else None
        for source, said in (one.get("sources") or {}).items():
            way = Way(
                source=source,
                latency_s=said["latency_s"],
                bytes_per_s=said["bytes_per_s"],
                fetches=int(said["fetches"]),
                bytes=int(said["bytes"]),
            )
            rows.append(_row(str(one["executor"]), way, computing))
    return rows


def _computing(costs: Mapping[str, float]) -> Computing:
    return Computing(
        cost=StepCost(
            base_ns=costs["base_ns"],
            per_row_ns=costs["per_row_ns"],
            per_logit_ns=0.0,
            per_pair_ns=costs["per_pair_ns"],
        ),
        step_ns_max=int(costs["step_ns_max"]),
        bytes_per_token=costs["bytes_per_token"],
        context_max=int(costs["context_max"]),
    )


def _row(executor: str, way: Way, computing: Computing | None) -> Row:
    pays = None if computing is None else break_even(way, computing)
    return Row(executor=executor, way=way, pays_from=pays, known=computing is not None)


def shown(rows: Sequence[Row]) -> list[str]:
    """Rows for people."""
    if not rows:
        return []
    heads = ("executor", "source", "latency", "bandwidth", "fetches", "bytes", "pays from")
    lines = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _cells(row: Row) -> tuple[str, ...]:
    way = row.way
    pays = "never" if row.pays_from is None else f"{row.pays_from} tokens"
    rate = way.bytes_per_s
    return (
        row.executor,
        NAMES.get(way.source, way.source),
        f"{1e3 * way.latency_s:.3f} ms",
        f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s",
        f"{way.fetches:,}",
        f"{way.bytes / 1e6:,.1f} MB",
        pays if row.known else "",
    )
