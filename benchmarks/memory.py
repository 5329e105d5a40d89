"""Proportional set size of whole process trees, without what KV arenas hold."""

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.report import Bar, Table
from benchmarks.trees import Served, serving

EXECUTORS = (1, 2, 3)
ARENA = "/memfd:tercet-kv"
MB = 1e6
STREAMS = 8
TOKENS = 24
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


@dataclass(frozen=True)
class Weight:
    """PSS of one process in MB: all of it, and the part that is arena pages."""

    pss: float
    arena: float

    @property
    def rest(self) -> float:
        return self.pss - self.arena


def memory() -> Table:
    """Weigh trees of one, two and three executors after each executor has worked."""
    trees = {count: _weigh(count) for count in EXECUTORS}
    rows = []
    for count, weights in trees.items():
        for name, weight in weights.items():
            rows.append((f"{count}", name, weight.pss, weight.arena, weight.rest))
        rows.append((f"{count}", "all", *_sums(weights)))
    totals = [_sums(weights)[2] for weights in trees.values()]
    further = max(later - former for former, later in pairwise(totals))
    return Table(
        title="Memory of the process tree (PSS)",
        command="python -m benchmarks --only memory",
        columns=("executors", "process", "PSS, MB", "of it KV, MB", "without KV, MB"),
        rows=rows,
        bars=(
            Bar(what="one executor", value=totals[0] / 1e3, bound=1.2, unit="GB"),
            Bar(what="each further one (the dearest)", value=further / 1e3, bound=0.25, unit="GB"),
        ),
        note=(
            "`tercet serve smollm2 --replicas N`, read from /proc/PID/smaps after "
            f"{STREAMS} requests at once for every executor, {TOKENS} tokens each. KV is what "
            f"mappings named `{ARENA.removeprefix('/')}*` hold: PSS counts only pages that a "
            "process touched. The model image is shared: each process has its part of it."
        ),
    )


def _weigh(replicas: int) -> dict[str, Weight]:
    with serving(["smollm2", "--replicas", str(replicas)]) as served:
        _wait_for(served, replicas)
        with ThreadPoolExecutor(STREAMS * replicas) as pool:
            list(pool.map(lambda seed: _ask(served, seed), range(STREAMS * replicas)))
        return {
            f"{name} ({pid})" if name in {"", "python"} else name: weight
            for pid, name in served.processes().items()
            if (weight := weigh(pid)) is not None
        }


def weigh(pid: int) -> Weight | None:
    """Give the weight of a process, None if it has gone."""
    with contextlib.suppress(OSError, psutil.NoSuchProcess):
        pss = psutil.Process(pid).memory_full_info().pss
        arena = sum(size for name, size in mappings(pid) if name.startswith(ARENA))
        return Weight(pss / MB, arena / MB)
    return None


def mappings(pid: int) -> Iterator[tuple[str, int]]:
    """Give the name and the PSS in bytes of every mapping."""
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := _MAPPING.match(line):
            name = match.group(1)
        elif line.startswith("Pss:"):
            yield name, int(line.split()[1]) * 1024


def _wait_for(served: Served, replicas: int) -> None:
    while True:
        with urllib.request.urlopen(f"{served.url}/health") as answer:
            if json.load(answer).get("executors_ready") == str(replicas):
                return


def _ask(served: Served, seed: int) -> None:
    prompt = [1000 + seed * 101 + place for place in range(100)]
    body = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "model": "smollm2"}
    request = urllib.request.Request(
        f"{served.url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def _sums(weights: dict[str, Weight]) -> tuple[float, float, float]:
    every = weights.values()
    return sum(w.pss for w in every), sum(w.arena for w in every), sum(w.rest for w in every)
