"""Checkpoints in INT8 by the conventions of compressed-tensors, and those that are refused."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_models import TINY, tiny_tensors, write_folder

from tercet.base.errors import Invalid
from tercet.models.checkpoints.compressed import is_int8, quantization_config
from tercet.models.checkpoints.huggingface import open_folder
from tercet.program.rounding import symmetric8

CONFIG = {"quantization_config": quantization_config(["lm_head"])}


def quantized(source: str = TINY, scale_type: type = np.float32) -> dict[str, np.ndarray]:
    """The tensors of a random model, the projections of its layers in INT8."""
    tensors = {}
    for name, array in tiny_tensors(source).items():
        tensors[name] = array
        if "_proj.weight" in name:
            codes, scales = symmetric8(array)
            tensors[name] = codes.astype(np.int8)
            tensors[f"{name}_scale"] = scales.astype(scale_type)
    return tensors


@pytest.mark.parametrize("scale_type", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bare", [False, True])
def test_reads_integers_and_what_they_mean(tmp_path: Path, scale_type: type, bare: bool) -> None:
    tensors = quantized(scale_type=scale_type)
    stored = {name.removeprefix("model.") if bare else name: one for name, one in tensors.items()}
    checkpoint = open_folder(write_folder(tmp_path, tensors=stored, config=CONFIG))
    assert sorted(checkpoint.tensor_names()) == sorted(tiny_tensors())
    for name in tiny_tensors():
        read = checkpoint.read(name)
        if "_proj.weight" not in name:
            np.testing.assert_array_equal(read, tensors[name])
            with pytest.raises(Invalid, match="not in 8-bit integers"):
                checkpoint.read_int8(name)
            continue
        assert checkpoint.describe(name).dtype == "I8"
        codes, scales = checkpoint.read_int8(name)
        assert scales.shape == codes.shape[:1]
        assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
        np.testing.assert_array_equal(codes, tensors[name])
        expected = codes * tensors[f"{name}_scale"].astype(np.float32)
        np.testing.assert_array_equal(read, expected)


def test_one_scale_for_all_channels(tmp_path: Path) -> None:
    tensors = quantized()
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[f"{name}_scale"] = np.array([0.5], np.float32)
    checkpoint = open_folder(write_folder(tmp_path, tensors=tensors, config=CONFIG))
    np.testing.assert_array_equal(checkpoint.read_int8(name)[1], np.full(64, 0.5, np.float32))
    np.testing.assert_array_equal(checkpoint.read(name), tensors[name] * np.float32(0.5))


def changed(path: str, value: object) -> dict[str, object]:
    """The configuration with one value changed; the path's parts are separated by slashes."""
    config = json.loads(json.dumps(CONFIG))
    *folders, last = path.split("/")
    place = config["quantization_config"]
    for folder in folders:
        place = place[folder]
    place[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("quant_method", "awq", r'quantized weights \("awq"\)'),
        ("format", "pack-quantized", 'with format "pack-quantized"'),
        ("config_groups", {}, "with no config_groups"),
        ("config_groups/group_0", None, "with weights None"),
        ("config_groups/group_0/weights", None, "with weights None"),
        ("config_groups/group_0/weights/num_bits", 4, "weights of num_bits 4"),
        ("config_groups/group_0/weights/type", "float", "weights of type 'float'"),
        ("config_groups/group_0/weights/symmetric", False, "weights of symmetric False"),
        ("config_groups/group_0/weights/strategy", "group", "weights of strategy 'group'"),
        ("config_groups/group_0/input_activations", None, "input_activations None"),
        ("config_groups/group_0/input_activations/dynamic", False, "not dynamic per token"),
        ("config_groups/group_0/input_activations/strategy", "tensor", "not dynamic per token"),
        ("config_groups/group_0/output_activations", {"num_bits": 8}, "output_activations"),
        ("kv_cache_scheme", {"num_bits": 8}, "kv_cache_scheme"),
        ("sparsity_config", {"format": "sparse-24-bitmask"}, "sparsity_config"),
    ],
)
def test_another_scheme_is_refused(tmp_path: Path, path: str, value: object, said: str) -> None:
    folder = write_folder(tmp_path, tensors=quantized(), config=changed(path, value))
    with pytest.raises(Invalid, match=said) as caught:
        open_folder(folder)
    assert str(folder) in caught.value.sentence


def test_a_model_without_the_word_is_not_quantized() -> None:
    assert not is_int8({})
    assert not is_int8({"quantization_config": None})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.layers.0.mlp.down_proj.weight_scale": None}, "as I8 without"),
        ({"model.layers.0.mlp.down_proj.weight_scale": np.ones((3, 1), np.float32)}, "scales of"),
        ({"model.layers.0.mlp.down_proj.weight_scale": np.ones((64, 1), np.int32)}, "as I32"),
        ({"model.layers.0.mlp.down_proj.weight": np.ones((2, 2, 2), np.int8)}, "scales of"),
        ({"model.norm.weight": np.ones(64, np.int8)}, "as I8 without"),
    ],
)
def test_integers_without_fitting_scales_are_refused(
    tmp_path: Path, change: dict[str, np.ndarray | None], said: str
) -> None:
    tensors = {name: one for name, one in (quantized() | change).items() if one is not None}
    with pytest.raises(Invalid, match=said):
        open_folder(write_folder(tmp_path, tensors=tensors, config=CONFIG))


def test_integers_in_a_model_that_is_not_quantized_are_refused(tmp_path: Path) -> None:
    checkpoint = open_folder(write_folder(tmp_path, tensors=quantized()))
    with pytest.raises(Invalid, match="as I8; served are F64"):
        checkpoint.read("model.layers.0.mlp.down_proj.weight")
