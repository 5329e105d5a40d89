"""Builds the peers' environments, lets all systems do the same work, writes the report."""

import signal
import sys
from pathlib import Path

import click

from benchmarks.machine import heading, load_sentence
from benchmarks.peers.company import growth, prefills_among_streams
from benchmarks.peers.environments import PACKAGES, Homes, build_all
from benchmarks.peers.machines import described
from benchmarks.peers.measuring import Measuring
from benchmarks.peers.results import Failure, Note, Results
from benchmarks.peers.running import serving
from benchmarks.peers.systems import System, all_systems
from benchmarks.peers.tables import all_tables
from benchmarks.report import Table
from tercet.base.errors import Invalid

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "benchmarks" / "cpu.md"
PARTS = ("rows", "mixed", "company")


@click.command()
@click.option(
    "--peers", default=ROOT / ".peers", type=click.Path(path_type=Path), show_default=True
)
@click.option("--only", multiple=True, metavar="SYSTEM", help="Systems whose key begins so.")
@click.option("--part", multiple=True, type=click.Choice(PARTS), help="This part alone (repeat).")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--device", default="auto", show_default=True, help="Our device.")
@click.option("--keep", is_flag=True, help="Go on with what was measured before.")
@click.option("--built", is_flag=True, help="Take the environments as they are.")
@click.option("--write", is_flag=True, help=f"Write docs/benchmarks/{REPORT.name} too.")
def main(**options: object) -> None:
    """Measure Tercet beside OpenVINO GenAI, vLLM and llama.cpp."""
    peers, only, parts = options["peers"], options["only"], options["part"] or PARTS
    if not isinstance(peers, Path) or not isinstance(only, tuple) or not isinstance(parts, tuple):
        raise TypeError("click gave other types than asked for")
    homes = Homes(peers.absolute())
    results = Results(homes.root / "results.jsonl")
    failed = [] if options["built"] else build_all(homes)
    systems = all_systems(homes, device=str(options["device"]))
    if options["keep"]:
        results.read()
    else:
        results.begin()
        for line in [*heading(), *described()]:
            results.add(Note(text=line))
        packages = ", ".join(one for some in PACKAGES.values() for one in some)
        results.add(Note(text=f"- peers: {packages}"))
    for sentence in failed:
        name, _, reason = sentence.partition(": ")
        results.add(Failure(system=name, reason=reason))
    click.echo(load_sentence(), err=True)
    chosen = [one for one in systems if not only or one.key.startswith(only)]
    measuring = Measuring(results, chosen, int(str(options["rounds"])), homes.root / "limit")
    if "rows" in parts:
        measuring.rows()
    if "mixed" in parts:
        measuring.mixed()
    tables = all_tables(results, systems)
    if "company" in parts:
        tables += company(chosen)
    text = report(results, tables)
    click.echo(text)
    if options["write"]:
        REPORT.write_text(text)


def company(systems: list[System]) -> list[Table]:
    """Growth and prefills of our own server in INT8."""
    ours = [one for one in systems if one.is_ours]
    if not ours:
        return []
    command = "python -m benchmarks.peers --part company"
    with serving(ours[0]) as running:
        return [growth(running.url, command), prefills_among_streams(running.url, command)]


def report(results: Results, tables: list[Table]) -> str:
    """The whole document."""
    lines = ["# Tercet beside its peers on a CPU", "", "Made by `make bench-peers`.", ""]
    lines += [*(note.text for note in results.notes), ""]
    for table in tables:
        lines += table.lines()
    missed = [bar.what for table in tables for bar in table.bars if not bar.holds]
    lines.append(f"Bars missed: {'; '.join(missed)}." if missed else "Every bar holds.")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    try:
        main()
    except (Invalid, RuntimeError) as error:
        sys.exit(f"benchmarks.peers: {error}")
