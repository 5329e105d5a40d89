"""Folders in Hugging Face layout: whole and sharded, and every way in which one is not served."""

import json
import pickle
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_models import TINY, tiny_tensors, write_folder

from tercet.base.errors import Invalid
from tercet.base.model import NEUTRAL, SamplingDefaults
from tercet.models.checkpoints.huggingface import open_folder
from tercet.models.sources import open_checkpoint

INDEX = "model.safetensors.index.json"


def refused(folder: Path, said: str) -> str:
    with pytest.raises(Invalid, match=said) as caught:
        open_folder(folder)
    assert str(folder) in caught.value.sentence
    assert caught.value.sentence.endswith(".")
    return caught.value.sentence


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("source", [TINY, "random:qwen2", "random:qwen3?tied=1"])
def test_gives_the_tensors_and_the_shape(tmp_path: Path, source: str, num_shards: int) -> None:
    checkpoint = open_folder(write_folder(tmp_path / "m", source, num_shards=num_shards))
    made = tiny_tensors(source)
    assert sorted(checkpoint.tensor_names()) == sorted(made)
    for name, array in made.items():
        np.testing.assert_array_equal(checkpoint.read(name), array, err_msg=name)
    expected = open_checkpoint(source).facts().shape
    got = checkpoint.facts().shape
    assert got.end_ids == (259, 257), "what either configuration names"
    for field in ("family", "num_layers", "head_dim", "vocab", "tied_embeddings", "qk_norm"):
        assert getattr(got, field) == getattr(expected, field), field
    assert len(checkpoint.facts().files) == num_shards


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    halves = {name: array.astype(ml_dtypes.bfloat16) for name, array in tiny_tensors().items()}
    checkpoint = open_folder(write_folder(tmp_path, tensors=halves))
    for name, array in halves.items():
        np.testing.assert_array_equal(checkpoint.read(name), array.astype(np.float32))
    assert checkpoint.describe("model.norm.weight").dtype == "BF16"


def test_names_of_a_bare_transformer_get_their_prefix(tmp_path: Path) -> None:
    bare = {name.removeprefix("model."): array for name, array in tiny_tensors().items()}
    checkpoint = open_folder(write_folder(tmp_path, tensors=bare))
    assert sorted(checkpoint.tensor_names()) == sorted(tiny_tensors())
    np.testing.assert_array_equal(checkpoint.read("model.norm.weight"), bare["norm.weight"])


def test_pickled_weights_are_refused_unread(tmp_path: Path) -> None:
    """The file would raise if anything unpickled it."""
    write_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"w": 1}))
    refused(tmp_path, r"holds pickled weights only \(pytorch_model\.bin\), which can run any code")


def test_a_folder_without_weights_or_configuration(tmp_path: Path) -> None:
    refused(tmp_path, r"config\.json does not exist")
    write_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "holds no weights: expected model.safetensors or")


def test_a_missing_shard_is_named_with_a_tensor(tmp_path: Path) -> None:
    write_folder(tmp_path, num_shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    said = refused(tmp_path, "model-00002-of-00003.safetensors is missing; ")
    assert "places tensor 'model." in said


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, num_shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    refused(tmp_path, r"model-00001-of-00002.safetensors holds no tensor 'model\.extra\.weight'")


@pytest.mark.parametrize(
    "shard", ["../../etc/passwd", "/etc/shadow.safetensors", "a/b.safetensors", "x.bin", ""]
)
def test_an_index_may_not_lead_out_of_the_folder(tmp_path: Path, shard: str) -> None:
    write_folder(tmp_path, num_shards=2)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": shard}}))
    refused(tmp_path, re.escape(f"places tensor 'w' in {shard!r}"))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"weight_map": 3}', b"{}", b"\xff"])
def test_a_damaged_index_is_refused(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, num_shards=2)
    (tmp_path / INDEX).write_bytes(content)
    refused(tmp_path, r"is no JSON object|has no valid weight_map")


@pytest.mark.parametrize("content", [b"", b"[1]", b"nonsense", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_configuration_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    write_folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    refused(tmp_path, rf"{name} is no JSON object")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "mamba"}, 'model family "mamba" is not supported; supported are llama'),
        ({"quantization_config": {"quant_method": "gptq"}}, 'quantized weights \\("gptq"\\)'),
        ({"num_hidden_layers": 10**9}, "holds 21 tensors, config.json speaks of 1000000000 layers"),
        ({"hidden_size": "many"}, "hidden_size is 'many', expected a positive integer"),
    ],
)
def test_a_model_that_is_not_served_is_refused(tmp_path: Path, config: dict, said: str) -> None:
    refused(write_folder(tmp_path, config=config), said)


def test_a_damaged_generation_configuration_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "end"}')
    refused(tmp_path, "generation_config.json: eos_token_id is 'end', expected a token id")


def test_the_generation_configuration_recommends_sampling(tmp_path: Path) -> None:
    write_folder(tmp_path)
    assert open_folder(tmp_path).facts().defaults == NEUTRAL
    advice = '{"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}'
    (tmp_path / "generation_config.json").write_text(advice)
    assert open_folder(tmp_path).facts().defaults == SamplingDefaults(
        temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05
    )


@pytest.mark.parametrize("advice", ['{"top_p": 1.5}', '{"temperature": "hot"}', '{"top_k": true}'])
def test_sampling_that_nobody_could_ask_for_is_refused(tmp_path: Path, advice: str) -> None:
    write_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text(advice)
    refused(tmp_path, "generation_config.json: .*, expected a number from")
