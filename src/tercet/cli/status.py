"""`tercet status`: hosts, executors and what moves between them, as a table."""

import json
from collections.abc import Sequence
from typing import Any

import click

from tercet.cli.ask import ask, server_options


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@server_options
def command(*, as_json: bool, url: str, api_key: str | None) -> None:
    """Show what a running server consists of and how busy it is."""
    status = ask(url, "/tercet/status", key=api_key)
    click.echo(json.dumps(status, indent=2) if as_json else render(status))


def render(status: dict[str, Any]) -> str:
    """Spell a status for a person."""
    jobs = status["jobs"]
    state = "ready" if status["ready"] else f"not ready: {status['reason'] or 'it starts'}"
    asked = f"jobs: {jobs['running']} running, {jobs['queued']} queued"
    tasks = f"tasks: {jobs['tasks_placed']} placed, {jobs['tasks_waiting']} waiting"
    lines = [
        f"Tercet {status['version']}, up {status['uptime_s']:.0f} s, {state}",
        f"{asked}; {tasks}",
    ]
    for model, counts in status["wanted"].items():
        roles = ", ".join(f"{role} {count}" for role, count in counts.items() if count)
        lines.append(f"wanted of {model}: {roles or 'nothing'}")
    if status["hosts"]:
        rows = [[h["name"], h["executors"], _yes(h["pooled"]), h["data"]] for h in status["hosts"]]
        lines += ["", *_table(("host", "executors", "pooled", "data"), rows)]
    rows = [_executor(one) for one in status["executors"]]
    lines += ["", *_table(("id", "host", "role", "state", "tasks", "prompts", "free/blocks"), rows)]
    rows = [
        [host, f"{share['values']:.0f}", _filled(share, "dram"), _filled(share, "disk")]
        for host, share in status.get("pool", {}).items()
    ]
    if rows:
        lines += ["", *_table(("share of", "values", "DRAM", "disk"), rows)]
    rows = [
        [family, labels, f"{value:,.0f}"]
        for family, counters in status["transfers"].items()
        for labels, value in counters.items()
    ]
    if rows:
        lines += ["", *_table(("moved", "of", "total"), rows)]
    return "\n".join(lines)


def _executor(one: dict[str, Any]) -> list[object]:
    role = one["role"] or "?"
    if one["serves_as"] not in (None, one["role"]):
        role = f"{one['serves_as']} -> {role}"
    state = one["state"]
    if state == "ready" and not one.get("connected", False):
        state = "ready, not connected"
    free = one.get("blocks_free")  # unknown until it has spoken of a task
    blocks = f"{'?' if free is None else free}/{one['blocks']}" if "blocks" in one else "-"
    tasks, prompts = one.get("tasks", "-"), one.get("prompts", "-")
    return [one["executor"], one["host"], role, state, tasks, prompts, blocks]


def _filled(share: dict[str, float], tier: str) -> str:
    used, total = share[f"{tier}_used"], share[f"{tier}_total"]
    return f"{used / 2**20:.0f} of {total / 2**20:.0f} MiB" if total else "-"


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Line up columns; numbers are short enough to stand left."""
    shown = [list(heads), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[at]) for row in shown) for at in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
