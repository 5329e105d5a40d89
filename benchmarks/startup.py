"""How long it takes until something can be used, and how much of a disk it takes."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.models import checkpoint_file
from benchmarks.report import Bar, Table, middle, spread
from benchmarks.trees import TERCET, serving

ROOT = Path(__file__).parents[1]
LOCKS = (ROOT / "requirements" / "runtime.lock", ROOT / "requirements" / "build.lock")
RUNS = 9
SERVE_RUNS = 5
MB = 1e6
_IMPORT = "import time; t = time.perf_counter(); import tercet; print(time.perf_counter() - t)"


def startup(*, venv: bool = False) -> Table:
    """Measure imports, help, serving with files in place, and the environment's size."""
    imports = [float(_output([sys.executable, "-c", _IMPORT])) for _ in range(RUNS)]
    bare = [_seconds([sys.executable, "-c", "pass"]) for _ in range(RUNS)]
    helps = [_seconds([TERCET, "--help"]) for _ in range(RUNS)]
    with serving(["smollm2"]) as first:
        in_place = first.ready_s
    ready = []
    for _ in range(SERVE_RUNS):
        with serving(["smollm2"]) as served:
            ready.append(served.ready_s)
    environment, how = _fresh_environment() if venv else _installed_environment()
    model = checkpoint_file()
    total = environment + (model.stat().st_blocks * 512 / MB)
    rows = [
        ("import tercet", middle(imports), spread(imports), "s"),
        ("python -c pass (for comparison)", middle(bare), spread(bare), "s"),
        ("tercet --help", middle(helps), spread(helps), "s"),
        ("tercet serve smollm2 until GET /ready is 200", middle(ready), spread(ready), "s"),
        ("the first such start of this run", in_place, "", "s"),
        ("environment without test groups", environment, how, "MB"),
        ("the model's file", model.stat().st_blocks * 512 / MB, model.name, "MB"),
    ]
    return Table(
        title="Start and size",
        command="python -m benchmarks --only startup",
        columns=("what", "median", "range", "unit"),
        rows=rows,
        bars=(
            Bar(what="import tercet", value=middle(imports), bound=0.05, unit="s"),
            Bar(what="tercet --help", value=middle(helps), bound=0.2, unit="s"),
            Bar(what="serve to /ready", value=middle(ready), bound=3.0, unit="s"),
            Bar(what="environment and model file", value=total, bound=400.0, unit="MB"),
        ),
        note=(
            f"Each run is a fresh process; {RUNS} runs, {SERVE_RUNS} of `tercet serve`. Sizes are "
            "of disk blocks."
        ),
    )


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _installed_environment() -> tuple[float, str]:
    """Sum up the files of the locked packages as they are installed here."""
    size = 0
    names = [*_locked(), "pip", "tercet"]
    for name in names:
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        size += sum(_blocks(Path(str(file.locate()))) for file in files)
    size += sum(_blocks(path) for path in (ROOT / "src").rglob("*"))
    return size / MB, f"files of {len(names)} packages"


def _locked() -> list[str]:
    found: dict[str, None] = {}
    for lock in LOCKS:
        for match in re.finditer(r"^([A-Za-z0-9_.-]+)==", lock.read_text(), re.MULTILINE):
            found[match.group(1)] = None
    return list(found)


def _fresh_environment() -> tuple[float, str]:
    """Install what `make setup` installs into a folder that is thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="tercet-environment-"))
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "install"]
        locks = [part for lock in LOCKS for part in ("-r", str(lock))]
        subprocess.run([*pip, "--require-hashes", *locks], check=True)
        size = sum(_blocks(path) for path in [*folder.rglob("*"), *(ROOT / "src").rglob("*")])
        return size / MB, "a fresh one, built for this"
    finally:
        shutil.rmtree(folder)


def _blocks(path: Path) -> int:
    return path.lstat().st_blocks * 512 if path.is_file() and not path.is_symlink() else 0
