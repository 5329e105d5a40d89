"""The process that must outlive all others stays small, whatever it was asked to prepare."""

import re
import subprocess
import sys
from pathlib import Path

import psutil

SUPERVISOR_BYTES_MAX = 40_000_000
PREPARE = """
import sys
from tercet.cli.prepare import prepare
from tercet.runtime.config import TreeConfig
model = "random:llama?layers=2&hidden=64"
print(prepare(TreeConfig(model=model, cache_folder=sys.argv[1])).location)
print(*sorted(name for name in sys.modules if name.split(".")[0] == "numpy" or "models" in name))
"""


def test_a_model_is_prepared_in_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PREPARE, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["random:llama?layers=2&hidden=64", ""]
    assert list((tmp_path / "images").iterdir())


def test_a_serving_supervisor_is_small(tmp_path: Path) -> None:
    tercet = Path(sys.executable).parent / "tercet"
    options = ("--port", "0", "--set", f"cache_folder={tmp_path}")
    process = subprocess.Popen(
        [tercet, "serve", "random:llama?layers=2&hidden=64", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert any(re.search(r"http://", line) for line in process.stdout)
        assert psutil.Process(process.pid).memory_info().rss < SUPERVISOR_BYTES_MAX
    finally:
        process.terminate()
        process.communicate(timeout=60)
