"""docs/simulator.md names every scenario and every kind of fault."""

import re
from pathlib import Path

from tercet.sim.scenario import FAULT_KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")


def rows(title: str) -> set[str]:
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))


def test_every_scenario_has_a_row() -> None:
    assert rows("Scenarios") == {path.stem for path in (ROOT / "scenarios").glob("*.toml")}


def test_every_kind_of_fault_has_a_row() -> None:
    assert rows("Faults") == set(FAULT_KINDS)
