"""Every scenario holds every invariant, and the same seed tells the same tale to the last byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.jobs.job import FailureCode
from tercet.messages.effects import Effect, Fact
from tercet.messages.events import MoveEnd
from tercet.sim.node import Node
from tercet.sim.run import Run, run_scenario
from tercet.sim.scenario import FAULT_KINDS, load_scenario

FOLDER = Path(__file__).parents[2] / "scenarios"
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.toml"))
SEEDS_OF_EVERYTHING = range(20)
SEEDS_OF_PEERS = range(8)
RARE = ("everything", "peers")
"""With so many kinds of faults that not each happens in every run."""


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in RARE])
def test_scenario_keeps_the_invariants(name: str, seed: int) -> None:
    scenario = load_scenario(FOLDER / f"{name}.toml")
    report = run_scenario(scenario, seed)
    assert report.outcome.jobs == scenario.workload.jobs
    assert report.outcome.finished > scenario.workload.jobs // 4
    wanted = {fault.kind for fault in scenario.faults}
    assert set(report.faults) == wanted, "a fault of the scenario never happened: make it longer"


def test_guesses_are_verified_in_company() -> None:
    """Nearly half of the tokens of text that repeats itself need no step of their own."""
    run = Run(load_scenario(FOLDER / "quotes.toml"), 11)
    sums = dict.fromkeys(("tokens", "drafts", "drafted", "accepted"), 0.0)

    def count(_: Node, __: object, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fact) and effect.name == "step.done":
                for name, value in effect.values:
                    if name in sums:
                        sums[name] += value

    run.world.after_turn.append(count)
    run.go()
    assert 0 < sums["drafts"] <= sums["drafted"]
    assert sums["accepted"] <= sums["drafted"]
    assert sums["accepted"] > 0.4 * sums["tokens"]


def test_ten_thousand_jobs_under_every_fault() -> None:
    """Judged: 20 seeds, 10,000 jobs in all, all fault kinds, no invariant broken."""
    scenario = load_scenario(FOLDER / "everything.toml")
    reports = [run_scenario(scenario, seed) for seed in SEEDS_OF_EVERYTHING]
    assert sum(report.outcome.jobs for report in reports) == 10_000
    wanted = {fault.kind for fault in scenario.faults}
    assert {kind for report in reports for kind in report.faults} == wanted
    assert len({report.digest for report in reports}) == len(reports)
    ends = [code for report in reports for code in report.outcome.failed]
    assert FailureCode.EXECUTOR_LOST in ends, "no poison job was ended"
    finished = sum(report.outcome.finished for report in reports)
    assert finished > 8_000, "too few streams finished: something gave up too early"


def test_every_fault_over_peers_and_pool() -> None:
    """Blocks are lent, moved, stored and brought back, and each way of failing is met."""
    scenario = load_scenario(FOLDER / "peers.toml")
    reports = [run_scenario(scenario, seed) for seed in SEEDS_OF_PEERS]
    assert {kind for report in reports for kind in report.faults} == set(FAULT_KINDS)
    ends = {end.split()[0] for report in reports for end in report.moves}
    assert ends == set(MoveEnd)
    assert sum(report.blocks["foreign"] for report in reports) > 1000
    assert sum(report.moves["done storage"] for report in reports) > 1000
    streams = sum(report.outcome.streams for report in reports)
    assert sum(report.outcome.finished for report in reports) > 0.6 * streams


@pytest.mark.parametrize("name", ["kills", "crowded", "peers"])
def test_the_digest_does_not_depend_on_the_hash_seed(name: str) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tercet.sim.run import run_scenario\n"
        "from tercet.sim.scenario import load_scenario\n"
        "print(run_scenario(load_scenario(Path(sys.argv[1])), 5).digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program, str(FOLDER / f"{name}.toml")],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] != ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[faults]]\nkind = 'earthquake'\nat_ms = 1", "unknown fault 'earthquake'"),
        ("[[faults]]\nkind = 'kill_agent'", "every_ms or at_ms"),
        ("[workload]\njbos = 3", "jbos"),
        ("[workload]\njobs = 'many'", "int"),
        ("[cluster]\nreplicas = 0", "positive"),
        ("[workload]\nprompt_max = 5000", "context_max"),
        ("[workload", "scenario bad.toml"),
    ],
)
def test_a_bad_scenario_is_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        load_scenario(path)
    assert words in caught.value.sentence
