"""`tercet explain`: what it says is what is then used."""

import json
import os
from pathlib import Path

import gguf
import pytest
from click.testing import CliRunner, Result
from small_models import write_gguf

from tercet.cli.explain import command
from tercet.devices.cpu.native import usable_isas
from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.cores import usable_cores
from tercet.runtime.opening import open_configured
from tercet.runtime.solo import open_solo

TINY = "random:llama?layers=2&hidden=64&context=256"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tercet"


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def said(*arguments: str) -> dict[str, object]:
    result = explain("--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


def test_the_machine_alone() -> None:
    found = said()
    assert found["threads"]["count"] == usable_cores()  # type: ignore[index]
    assert found["threads"]["cores"]["affinity"] == len(os.sched_getaffinity(0))  # type: ignore[index]
    assert found["processor"]["isas"] == usable_isas()  # type: ignore[index]
    assert found["device"] == ("cpu" if usable_isas() else "reference")
    assert found["model"] is None


@pytest.mark.parametrize("isa", usable_isas())
def test_an_instruction_set_that_is_forced(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    monkeypatch.setenv("TERCET_ISA", isa)
    found = said()
    assert found["processor"]["isa"] == isa  # type: ignore[index]
    assert found["processor"]["forced"] is True  # type: ignore[index]
    assert isa in str(found["numerics"])


@pytest.mark.parametrize("device", ["auto", "reference"])
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_what_it_says_of_a_model_is_what_is_opened(
    cache: Path, device: str, quantization: str
) -> None:
    options = ("--device", device, "--quantization", quantization)
    planned = said(TINY, *options)["model"]
    assert isinstance(planned, dict)
    assert planned["image"]["present"] is False
    assert not list(cache.glob("images/*"))  # nothing was built
    runtime = RuntimeConfig(device=device, quantization=quantization)  # type: ignore[arg-type]
    config = TreeConfig(model=TINY, cache_folder=str(cache), runtime=runtime)
    opened = open_configured(config)
    image = opened.model.image
    assert image is not None
    assert planned["image"]["path"] == str(image.path)
    assert planned["image"]["size_bytes"] == image.path.stat().st_size
    assert said(TINY, *options)["model"]["image"]["present"] is True  # type: ignore[index]
    sizes = {one.offset: one.size for one in image.header.weights}
    assert planned["weight_bytes"] == sum(sizes.values())
    formats = {form for group in planned["weights"] for form in group["formats"]}
    assert formats == {one.format.value for one in image.header.weights}
    solo = open_solo(config, chats=False)
    memory = solo._engine.memory
    assert planned["kv"]["bytes_per_token"] * 16 == memory.layout.block_bytes  # type: ignore[attr-defined]
    assert planned["kv"]["context_max"] == 256


def test_a_file_of_blocks_keeps_them(tmp_path: Path) -> None:
    shape = "random:llama?hidden=256&vocab=260"
    path = write_gguf(tmp_path / "a.gguf", shape, kind=gguf.GGMLQuantizationType.Q8_0)
    found = said(str(path))["model"]
    assert isinstance(found, dict)
    assert found["location"] == str(path)
    expected = ["q8_0"] if usable_isas() else ["f32"]
    assert {group["name"]: group["formats"] for group in found["weights"]} == {
        **dict.fromkeys(["embedding", "head", "attention", "feed-forward"], expected),
        "norms and biases": ["f32"],
    }


def test_people_read_the_same() -> None:
    text = explain(TINY, "--threads", "3", "--kv-dtype", "auto").output
    assert "3: as set (--threads)" in text
    assert "to be built at the first start" in text
    assert "2 layers, contexts of 256 tokens" in text


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("smollm2", "not fetched yet"),
        ("organization/name", "Hugging Face hub"),
    ],
)
def test_a_model_that_is_not_here_is_not_fetched(cache: Path, model: str, words: str) -> None:
    found = said(model)
    assert words in str(found["model_why"])
    assert found["model"] is None
    assert not cache.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nix",), "nix"),
        (("cost:tiny",), "no weights"),
        ((TINY, "--device", "cuda"), "cuda"),
        ((TINY, "--kv-dtype", "int5"), "int5"),
        ((TINY, "--set", "runtime.kv_cache_memory_bytes=1"), "KV memory"),
        ((TINY, "--set", "runtime.thread=1"), "runtime.threads"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments: tuple[str, ...], words: str) -> None:
    result = explain(*arguments)
    assert result.exit_code != 0
    assert words in str(result.exception)
