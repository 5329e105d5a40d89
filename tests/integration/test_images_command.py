"""`tercet images` while another process has an image mapped."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from float32_models import open_float32

from tercet.cli.images import command
from tercet.models import ModelCacheConfig

LLAMA, QWEN = "random:llama?seed=1", "random:qwen3?seed=2"
HOLD = """
import sys
from pathlib import Path
from float32_models import open_float32
from tercet.models import ModelCacheConfig
weights = open_float32(sys.argv[1], cache=ModelCacheConfig(folder=Path(sys.argv[2]))).weights()
print("held", flush=True)
sys.stdin.read(1)
"""


@contextmanager
def held(source: str, cache: Path) -> Iterator[None]:
    """Another process has the model's image mapped."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, source, str(cache)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "data")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate("x", timeout=60)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for source in (LLAMA, QWEN):
        open_float32(source, cache=ModelCacheConfig(folder=tmp_path))
    return tmp_path


def images(*arguments: str, cache: Path) -> Result:
    return CliRunner().invoke(command, [*arguments, "--cache", str(cache)])


def listed(cache: Path) -> dict[str, dict[str, object]]:
    entries = json.loads(images("ls", "--json", cache=cache).output)
    return {str(entry["model"]): entry for entry in entries}


def test_lists_what_ought_to_be_known(cache: Path) -> None:
    with held(LLAMA, cache):
        entries = listed(cache)
        table = images("ls", cache=cache).output
    assert {name: entry["in_use"] for name, entry in entries.items()} == {LLAMA: True, QWEN: False}
    entry = entries[QWEN]
    assert (entry["formats"], entry["packed_for"], entry["usable"]) == (["f32"], "float32", True)
    path = cache / "images" / f"{entry['key']}.image"
    assert entry["bytes"] == path.stat().st_size
    lines = table.splitlines()
    assert lines[0].split() == ["KEY", "MODEL", "FORMATS", "PACKED", "FOR", "SIZE", "LAST", "USE"]
    assert [line.endswith("in use") for line in lines[1:3]].count(True) == 1
    assert lines[-1].startswith("2 images, ")
    assert not listed(cache)[LLAMA]["in_use"]


def test_removes_by_name_and_key_but_nothing_in_use(cache: Path) -> None:
    key = str(listed(cache)[QWEN]["key"])
    with held(LLAMA, cache):
        result = images("rm", LLAMA, key[:8], cache=cache)
        assert result.exit_code == 1
        assert "in use" in result.output
        assert set(listed(cache)) == {LLAMA}
    assert images("rm", LLAMA, cache=cache).exit_code == 0
    assert not listed(cache)
    assert not list((cache / "images").iterdir())


def test_removes_all_that_it_may(cache: Path) -> None:
    with held(QWEN, cache):
        result = images("rm", "--all", "--json", cache=cache)
        assert result.exit_code == 1
        assert sorted(json.loads(result.output)["images"].values()) == ["in use", "removed"]
        assert set(listed(cache)) == {QWEN}


def test_removes_what_was_not_used_for_long(cache: Path) -> None:
    entries = listed(cache)
    mark = cache / "images" / f"{entries[LLAMA]['key']}.used"
    os.utime(mark, (mark.stat().st_mtime - 3 * 86_400,) * 2)
    assert images("rm", "--unused-for", "4", cache=cache).output == "0.0 MB freed\n"
    assert images("rm", "--unused-for", "2.5", cache=cache).exit_code == 0
    assert set(listed(cache)) == {QWEN}
    with held(QWEN, cache):
        result = images("rm", "--unused-for", "0", cache=cache)
        assert result.exit_code == 0, "nobody asked for one that is being used"
        assert set(listed(cache)) == {QWEN}


def test_verifies_all_or_those_that_are_named(cache: Path) -> None:
    assert images("verify", cache=cache).exit_code == 0
    key = str(listed(cache)[LLAMA]["key"])
    path = cache / "images" / f"{key}.image"
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)
    result = images("verify", cache=cache)
    assert result.exit_code == 1
    assert f"{key[:12]}  {LLAMA}  damaged" in result.output
    assert images("verify", QWEN, cache=cache).exit_code == 0
    verdicts = json.loads(images("verify", "--json", cache=cache).output)
    assert verdicts[key] == "damaged"
    assert sorted(verdicts.values()) == ["damaged", "whole"]


def test_mistakes_are_said(cache: Path) -> None:
    assert "name images, or give --all" in images("rm", cache=cache).output
    for arguments in (("rm", "smollm3"), ("verify", "ab"), ("rm", "")):
        result = images(*arguments, cache=cache)
        assert "There is no image" in str(result.exception)
    assert len(listed(cache)) == 2


def test_a_host_without_images(tmp_path: Path) -> None:
    assert images("ls", cache=tmp_path).output.endswith("\n0 images, 0.0 MB\n")
    assert images("rm", "--all", cache=tmp_path).exit_code == 0
    assert images("verify", cache=tmp_path).exit_code == 0
    assert not list(tmp_path.iterdir())
