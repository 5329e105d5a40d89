"""Where a process spends its CPU time: `profiled/sitecustomize.py` turned on, and read."""

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import Table

FOLDER = Path(__file__).parent / "profiled"
TOP = 14
_LOOP = "event loop in C: epoll, reads from sockets"


class Sampled:
    """Samples of the process that runs a module."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._file = Path(tempfile.mkdtemp(prefix="tercet-samples-")) / "counts.json"

    def environment(self) -> dict[str, str]:
        """Give what the process must find in its environment."""
        paths = [str(FOLDER), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TERCET_SAMPLED": self._module,
            "TERCET_SAMPLES": str(self._file),
        }

    def take(self, pid: int) -> Mapping[str, int]:
        """Give the counts since the last time, by `module:function`."""
        self._file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
        deadline = time.monotonic() + 5
        while not self._file.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("a sampled process that does not answer")
            time.sleep(0.01)
        counts: dict[str, int] = json.loads(self._file.read_text())
        return counts


def tables(counts: Mapping[str, int], what: str, request_us: float) -> tuple[Table, Table]:
    """Give the split by package and the dearest functions; a request took so much CPU time."""
    total = max(1, sum(counts.values()))
    packages: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for name, count in counts.items():
        packages[_package(name)] += count
        functions[_LOOP if _in_loop(name) else name] += count

    def row(name: str, count: int) -> tuple[str, float, float]:
        return name, 100 * count / total, request_us * count / total

    columns = (what, "% of CPU", "us a request")
    return (
        Table(
            title="Where the time goes, by package",
            command="",
            columns=columns,
            rows=[row(name, count) for name, count in packages.most_common()],
        ),
        Table(
            title="Where the time goes, the dearest functions (without what they call)",
            command="",
            columns=columns,
            rows=[row(name, count) for name, count in functions.most_common(TOP)],
        ),
    )


def _package(name: str) -> str:
    if _in_loop(name):
        return _LOOP
    module = name.partition(":")[0]
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "tercet" else parts[0]


def _in_loop(name: str) -> bool:
    """No callback runs: the top frame is the one that runs the loop."""
    return name.startswith(("asyncio.runners:", "uvloop", "__main__:main", "runpy:"))
