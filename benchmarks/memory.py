"""Proportional set size of whole process trees, without what KV arenas hold."""

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.report import Bar, Table
from benchmarks.trees import Served, serving

EXECUTORS = (1, 2, 3)
ARENA = "/memfd:tercet-kv"
IMAGE = ".image"
MB = 1e6
STREAMS = 4
TOKENS = 16
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


@dataclass(frozen=True)
class Weight:
    """PSS of one process in MB, by what the pages belong to."""

    arena: float
    image_shared: float
    """Its part of the model image."""
    image: float
    """All pages of the image that it has, whoever else has them."""
    rest: float


def memory() -> Table:
    """Weigh trees of one, two and three executors after each executor has worked."""
    trees = {count: _weigh(count) for count in EXECUTORS}
    rows: list[tuple[str | float, ...]] = []
    totals = []
    for count, weights in trees.items():
        for name, one in weights.items():
            pss = one.arena + one.image_shared + one.rest
            rows.append((f"{count}", name, pss, one.arena, one.image_shared, one.rest))
        arena, rest = (
            sum(getattr(w, part) for w in weights.values()) for part in ("arena", "rest")
        )
        image = max(one.image for one in weights.values())
        totals.append(image + rest)
        rows.append((f"{count}", "**all**", arena + image + rest, arena, image, rest))
        rows.append((f"{count}", "**all without KV**", totals[-1], "", "", ""))
    further = [later - former for former, later in pairwise(totals)]
    return Table(
        title="Memory of the process tree (PSS, MB)",
        command="python -m benchmarks --only memory",
        columns=("executors", "process", "all", "KV", "model image", "the rest"),
        rows=rows,
        bars=(
            Bar(what="one executor", value=totals[0] / 1e3, bound=1.2, unit="GB"),
            Bar(
                what="each further one (the dearest)",
                value=max(further) / 1e3,
                bound=0.25,
                unit="GB",
            ),
        ),
        note=(
            "`tercet serve smollm2 --replicas N`, read from /proc/PID/smaps after "
            f"{STREAMS} requests at once for every executor, {TOKENS} tokens each. KV is what "
            f"mappings named `{ARENA.removeprefix('/')}*` hold: PSS counts only pages that a "
            "process touched. The image is shared by the executors, each with its part; in a "
            "tree's sum it is counted once, whole, even if programs outside share it too."
        ),
    )


def _weigh(replicas: int) -> dict[str, Weight]:
    with serving(["smollm2", "--replicas", str(replicas)]) as served:
        _wait_for(served, replicas)
        with ThreadPoolExecutor(STREAMS * replicas) as pool:
            list(pool.map(lambda seed: _ask(served, seed), range(STREAMS * replicas)))
        return {
            name or f"process {pid}": weight
            for pid, name in served.processes().items()
            if (weight := weigh(pid)) is not None
        }


def weigh(pid: int) -> Weight | None:
    """Give the weight of a process, None if it has gone."""
    arena = image_shared = image = rest = 0
    try:
        for name, pss, rss in mappings(pid):
            if name.startswith(ARENA):
                arena += pss
            elif name.endswith(IMAGE):
                image_shared += pss
                image += rss
            else:
                rest += pss
    except OSError:
        return None
    return Weight(arena / MB, image_shared / MB, image / MB, rest / MB)


def mappings(pid: int) -> Iterator[tuple[str, int, int]]:
    """Give name, PSS and RSS in bytes of every mapping."""
    name, rss = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if match := _MAPPING.match(line):
            name = match.group(1)
        elif line.startswith("Rss:"):
            rss = int(line.split()[1]) * 1024
        elif line.startswith("Pss:"):
            yield name, int(line.split()[1]) * 1024, rss


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
