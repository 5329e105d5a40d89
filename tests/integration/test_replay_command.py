"""`tercet serve --record` and `tercet replay`, as a person uses them after something went wrong."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

TERCET = str(Path(sys.executable).parent / "tercet")
SERVE = (TERCET, "serve", "random:llama?layers=2&hidden=64", "--device", "cost", "--port", "0")


def tercet(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [TERCET, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def serve_once(folder: Path, environment: dict[str, str]) -> None:
    """A short life: one completion, then SIGTERM."""
    process = subprocess.Popen(
        [*SERVE, "--served-model-name", "tiny", "--record", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://\S+:\d+", line)))
        body = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 20, "n": 2}
        assert httpx.post(f"{url}/v1/completions", json=body, trust_env=False).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = str(tmp_path_factory.mktemp("home"))
    return {**os.environ, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    serve_once(folder, environment)
    return folder


def test_every_machine_of_a_run_is_compared(recorded: Path) -> None:
    result = tercet("replay", str(recorded))
    assert result.returncode == 0, result.stdout + result.stderr
    lines = dict(line.split(".", 1) for line in result.stdout.splitlines())
    assert {"front-0", "cluster", "agent-local", "executor-0"} == set(lines)
    for line in lines.values():
        assert re.search(r"recording +[1-9]\d* events +[1-9]\d* effects  identical$", line), line


def test_a_difference_is_shown_and_counts(recorded: Path, tmp_path: Path) -> None:
    name = next(path.name for path in recorded.iterdir() if path.name.startswith("front-0"))
    data = bytearray((recorded / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    (tmp_path / "agent-local.9.recording").write_bytes(b"")
    (tmp_path / "cluster.9.recording").write_bytes(b"what is this")
    result = tercet("replay", str(tmp_path))
    assert result.returncode == 1
    empty, unknown, different = result.stdout.splitlines()
    assert "empty: its process was killed" in empty
    assert "is not a recording of tercet" in unknown
    assert re.search(r"DIFFERENT: event \d+, \w+ at \d+, brings", different)


def test_a_second_run_goes_nowhere_near_the_first(
    recorded: Path, environment: dict[str, str]
) -> None:
    result = subprocess.run(
        [*SERVE, "--record", str(recorded)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert result.returncode == 1
    assert "name an empty or a new one" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_recordings_is_a_mistake(tmp_path: Path) -> None:
    result = tercet("replay", str(tmp_path))
    assert result.returncode == 2
    assert "no *.recording" in result.stderr
