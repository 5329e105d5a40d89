"""`tercet sim`: run scenarios in virtual time; a failure prints its seed and its story."""

import sys
from pathlib import Path

import click
import msgspec

from tercet.base.errors import Invalid
from tercet.sim.run import Broken, Report, run_scenario
from tercet.sim.scenario import load_scenario

ALL = "all"


@click.command()
@click.argument("scenario", default=ALL)
@click.option("--seed", default=1, show_default=True, type=int)
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="So many.")
@click.option("--folder", default="scenarios", show_default=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run.")
def command(scenario: str, seed: int, seeds: int, folder: Path, *, as_json: bool) -> None:
    """Run SCENARIO (a name in the folder, a .toml file, or `all`)."""
    for path in _paths(scenario, folder):
        loaded = load_scenario(path)
        for number in range(seed, seed + seeds):
            try:
                report = run_scenario(loaded, number)
            except Broken as broken:
                click.echo(f"BROKEN: {broken}", err=True)
                sys.exit(1)
            click.echo(msgspec.json.encode(report).decode() if as_json else show(report))


def show(report: Report) -> str:
    """One run in two lines."""
    outcome = report.outcome
    faults = ", ".join(f"{count} {kind}" for kind, count in report.faults.items()) or "no faults"
    ends = {"finished": outcome.finished, "cancelled": outcome.cancelled, **outcome.failed}
    ended = ", ".join(f"{count} {end}" for end, count in ends.items())
    return (
        f"{report.scenario:<12} seed {report.seed:<4} {outcome.jobs} jobs,"
        f" {outcome.streams} streams ({ended}), {outcome.tokens} tokens"
        f" in {report.virtual_s:.1f} virtual seconds\n"
        f"{'':<12} {faults}; {report.executors_started} executors started,"
        f" {report.events} events; digest {report.digest}" + _blocks(report)
    )


def _blocks(report: Report) -> str:
    """A third line, where blocks were lent or moved."""
    if not report.moves and not report.blocks["lent"]:
        return ""
    moves = ", ".join(f"{count} {end}" for end, count in report.moves.items()) or "none"
    blocks = ", ".join(f"{count} {name}" for name, count in report.blocks.items())
    return f"\n{'':<12} blocks: {blocks}; moves: {moves}"


def _paths(scenario: str, folder: Path) -> list[Path]:
    if scenario.endswith(".toml"):
        return [Path(scenario)]
    known = sorted(folder.glob("*.toml"))
    if scenario == ALL:
        if not known:
            raise Invalid(f"no scenario in {folder}/", parameter="folder")
        return known
    chosen = [path for path in known if path.stem == scenario]
    if not chosen:
        names = ", ".join(path.stem for path in known) or "none"
        raise Invalid(f"no scenario {scenario!r} in {folder}/; known: {names}")
    return chosen
