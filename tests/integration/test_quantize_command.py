"""`tercet quantize`, from every kind of source, and what is opened again afterwards."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_models import TINY, write_folder, write_gguf

from tercet.base.errors import Invalid
from tercet.cli.quantize import command
from tercet.devices.reference.device import ReferenceDevice
from tercet.devices.reference.packing import Float32Packer
from tercet.models import ModelCacheConfig, OpenedModel, open_model
from tercet.models.sources import open_checkpoint
from tercet.program.formats import Format
from tercet.program.recipes import format_of
from tercet.text.bytelevel import ALPHABET
from tercet.text.load import load_codec

TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 30


class RoundingPacker(Float32Packer):
    """As a device has it that computes in bfloat16 where nothing is quantized."""

    name = "rounding"
    plain = Format.BF16


def quantize(*arguments: str, cache: Path) -> Result:
    return CliRunner().invoke(
        command, [*arguments, "--tokens", "128", "--cache", str(cache)], catch_exceptions=False
    )


def opened(folder: Path, cache: Path) -> OpenedModel:
    return open_model(str(folder), cache=ModelCacheConfig(folder=cache), packer=RoundingPacker())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


SOURCES = [TINY, f"{TINY}&tied=1", *(TINY.replace("llama", one) for one in ("qwen2", "qwen3"))]


@pytest.mark.parametrize("source", SOURCES)
def test_the_folder_is_served_in_int8(tmp_path: Path, cache: Path, source: str) -> None:
    out = tmp_path / "out"
    result = quantize(source, "-o", str(out), cache=cache)
    assert result.exit_code == 0, result.output
    assert "scales absorbed" in result.output
    model = opened(out, cache)
    forms = {name: format_of(recipe) for name, recipe in model.program.weights.items()}
    for name, form in forms.items():
        matrix = "norm" not in name and "bias" not in name
        sensitive = name in {"embedding", "head"} or name.endswith(".down")
        rounded = Format.Q8_0 if sensitive else Format.INT8
        assert form is (rounded if matrix else Format.F32), name
    codec, original = load_codec(model.tokenizer_source), load_codec("bytes")
    assert codec.encode("hello <|im_end|>") == original.encode("hello <|im_end|>")
    assert model.shape.end_ids == open_checkpoint(source).facts().shape.end_ids
    ReferenceDevice().compile(model.program, model.weights())


def test_the_file_holds_what_was_measured(tmp_path: Path, cache: Path) -> None:
    """Opened again, integers and scales are the file's own: nothing is rounded a second time."""
    out = tmp_path / "out"
    quantize(TINY, "-o", str(out), cache=cache)
    checkpoint, source = open_checkpoint(str(out)), open_checkpoint(TINY)
    assert sorted(checkpoint.tensor_names()) == sorted(source.tensor_names())
    name = "model.layers.1.self_attn.o_proj.weight"
    assert checkpoint.describe(name).dtype == "I8"
    codes, scales = checkpoint.read_int8(name)
    model = opened(out, cache)
    held = model.weights()["layers.1.o"].data.view(np.float32).reshape(codes.shape)
    np.testing.assert_array_equal(held, codes * scales[:, None])
    report = json.loads((out / "quantization.json").read_text())
    assert [step["name"] for step in report["steps"]][:2] == ["rounded", "scales absorbed"]
    assert report["calibration"] == "text that the model wrote"
    assert "vllm serve" in (out / "README.md").read_text()
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert config["ignore"] == ["lm_head"]


def test_a_folder_keeps_its_own_configuration_and_tokenizer(tmp_path: Path, cache: Path) -> None:
    out, bytes_folder = tmp_path / "out", tmp_path / "bytes"
    quantize(TINY, "-o", str(bytes_folder), cache=cache)
    source = write_folder(tmp_path / "source", config={"maker": "somebody"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).write_bytes((bytes_folder / name).read_bytes())
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    result = quantize(str(source), "-o", str(out), "--calibration", str(text), cache=cache)
    assert result.exit_code == 0, result.output
    assert json.loads((out / "config.json").read_text())["maker"] == "somebody"
    for name in ("tokenizer.json", "generation_config.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert json.loads((out / "quantization.json").read_text())["calibration"] == "text.txt"
    with pytest.raises(Invalid, match="is in INT8 already"):
        quantize(str(out), "-o", str(tmp_path / "again"), cache=cache)


def spell_bytes(writer: gguf.GGUFWriter) -> None:
    """Tokens of single bytes and one merge, so that texts have tokens."""
    tokens = [*ALPHABET, "ab", "<|end|>", "<|a|>", "<|b|>"]
    writer.kv_data[0]["tokenizer.ggml.tokens"].value = tokens
    writer.add_token_merges(["a b"])


def test_a_gguf_file_becomes_a_folder(tmp_path: Path, cache: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", also=spell_bytes)
    out = tmp_path / "out"
    result = quantize(str(path), "-o", str(out), cache=cache)
    assert result.exit_code == 0, result.output
    ours = open_checkpoint(str(path)).facts()
    theirs = opened(out, cache)
    for field in ("num_layers", "hidden", "head_dim", "rope_theta", "norm_eps", "end_ids"):
        assert getattr(theirs.shape, field) == pytest.approx(getattr(ours.shape, field)), field
    assert load_codec(theirs.tokenizer_source).end_ids == load_codec(ours.tokenizer).end_ids


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cost:tiny", "-o", "new"), "has no weights to quantize"),
        ((TINY, "-o", "."), "is there already and not empty"),
        ((TINY, "-o", "new", "--calibration", "short.txt"), "has 5 tokens, 192 are needed"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("short")
    with pytest.raises(Invalid, match=said):
        quantize(*arguments, cache=tmp_path / "cache")
    assert not (tmp_path / "new").exists()
