"""docs/operations.md names every metric family and every fact of the machines."""

import re
from pathlib import Path

from tercet.jobs.job import Finish
from tercet.messages.effects import Fact
from tercet.messages.wire import Load
from tercet.observe.board import ExecutorLoad
from tercet.observe.metrics import Metrics, RequestSize

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
MACHINES = ("job_executor", "task_executor", "cluster_manager", "node_agent")
FACT = re.compile(r"^\| `(\w+\.\w+)` \| (?:front|executor|agent) \|", re.MULTILINE)
TYPE = re.compile(r"^# TYPE (\w+):(\w+) (\w+)$", re.MULTILINE)


def exposed() -> list[tuple[str, str, str]]:
    """(prefix, family, type) after something of every kind happened."""
    load = ExecutorLoad(model="m", executor=1, load=Load(1, 2, 3, 4))
    metrics = Metrics(loads=lambda: [load])
    meter = metrics.meter("m", RequestSize(prompt_tokens=3, n=1, num_prompts=1, max_tokens=4))
    meter.gained(0, 1)
    meter.close(Finish.STOP)
    metrics.responded("/health", 200)
    metrics.on_fact(Fact(name="step.done", values=(("rows", 1.0),)))
    return TYPE.findall(metrics.exposition().decode())


def test_every_family_has_a_row_with_its_type() -> None:
    told = re.findall(r"^\| `(\w+)` \| (gauge|counter|histogram) \|", PAGE, re.MULTILINE)
    families = exposed()
    assert sorted(told) == sorted(
        (name, kind) for prefix, name, kind in families if prefix == "vllm"
    )
    own = {name for prefix, name, _ in families if prefix == "tercet"} - {name for name, _ in told}
    assert own == set(re.findall(r"`tercet:(\w+)`", PAGE))


def test_every_fact_has_a_row() -> None:
    told = set(FACT.findall(PAGE))
    said = {
        name
        for package in MACHINES
        for file in (ROOT / "src" / "tercet" / package).glob("*.py")
        for name in re.findall(
            r'"((?:job|task|step|front|cluster|executor)\.\w+)"', file.read_text()
        )
    }
    assert told == said
