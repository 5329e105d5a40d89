"""The registry's model, compared with what the `gguf` package reads from the same file."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from float32_models import float32_weights, open_float32
from real_model import smollm2, user_cache

from tercet.models import OpenedModel
from tercet.models.digests import sha256_of
from tercet.models.families.gguf_names import gguf_name, unpermute
from tercet.models.registry import find_model
from tercet.program.recipes import evaluate, sources

SHAPE = {"num_layers": 30, "hidden": 576, "num_heads": 9, "num_kv_heads": 3, "ffn": 1536,
         "vocab": 49_152, "tied_embeddings": True, "context_max": 8192}  # fmt: skip

COMPARED = ("layers.0.", "layers.17.", "layers.29.")


@pytest.fixture(scope="module")
def model() -> OpenedModel:
    return smollm2()


@pytest.fixture(scope="module")
def reader(model: OpenedModel) -> gguf.GGUFReader:
    return gguf.GGUFReader(model.location)


def test_is_the_file_that_was_meant(model: OpenedModel) -> None:
    entry = find_model("smollm2")
    assert entry is not None
    assert sha256_of(Path(model.location)) == entry.sha256
    assert {field: getattr(model.shape, field) for field in SHAPE} == SHAPE
    assert model.kind == "gguf"
    assert model.name == "smollm2"


def test_weights_are_those_of_the_gguf_package(model: OpenedModel, reader: gguf.GGUFReader) -> None:
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def read(name: str) -> np.ndarray:
        tensor = tensors[gguf_name(name)]
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        heads = 9 if "q_proj" in name else 3 if "k_proj" in name else None
        return array if heads is None else unpermute(array, heads)

    weights = float32_weights(model)
    for name, recipe in model.program.weights.items():
        if not name.startswith("layers.") or name.startswith(COMPARED):
            np.testing.assert_array_equal(weights[name], evaluate(recipe, read), err_msg=name)
    read_names = {one.name for recipe in model.program.weights.values() for one in sources(recipe)}
    assert {gguf_name(name) for name in read_names} == set(tensors), "no tensor is left out"


def test_metadata_are_those_of_the_gguf_package(
    model: OpenedModel, reader: gguf.GGUFReader
) -> None:
    metadata = model.tokenizer_source
    assert not isinstance(metadata, str | Path)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            assert metadata[name] == field.contents(), name


def test_opened_twice_is_the_same(model: OpenedModel) -> None:
    built: list[str] = []
    again = open_float32(
        model.location, cache=user_cache(), progress=lambda stage, *_: built.append(stage)
    )
    assert again.fingerprint == model.fingerprint
    assert again.image_path == model.image_path
    assert built == [], "nothing is fetched, checked or built again"
