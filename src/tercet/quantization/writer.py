"""A model in INT8 as a folder in Hugging Face layout, in the conventions of compressed-tensors.

    config.json              the source's (or one made from the shape) + quantization_config
    model.safetensors        X.weight int8 + X.weight_scale [N, 1]; the rest bfloat16
    generation_config.json   end tokens, and what the source recommends
    tokenizer files          by the caller

config.json is written last: a folder that was not finished is no model.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tercet.base.errors import Invalid
from tercet.base.model import ModelShape, SamplingDefaults
from tercet.models.checkpoints.compressed import SCALE, WEIGHT, quantization_config
from tercet.models.families.build import unsupported
from tercet.quantization.calibrate import Calibrated

SHARD_BYTES_MAX = 4_000_000_000
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_Array = NDArray[np.generic]


def check_folder(folder: Path) -> None:
    """`Invalid` unless the folder can be made, or is there and empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Invalid(
            f"{folder} is there already and not empty; name another folder.", parameter="output"
        )


def write_weights(folder: Path, calibrated: Calibrated) -> None:
    """All tensors, in one file or in shards with an index."""
    shards: list[dict[str, _Array]] = [{}]
    size = 0
    for name, array in _stored(calibrated).items():
        if size and size + array.nbytes > SHARD_BYTES_MAX:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    names = ["model.safetensors"]
    if len(shards) > 1:
        count = len(shards)
        names = [f"model-{at + 1:05}-of-{count:05}.safetensors" for at in range(count)]
        index = {name: file for file, one in zip(names, shards, strict=True) for name in one}
        total = sum(array.nbytes for one in shards for array in one.values())
        body = {"metadata": {"total_size": total}, "weight_map": index}
        _write_json(folder / "model.safetensors.index.json", body)
    for name, tensors in zip(names, shards, strict=True):
        save_file(tensors, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)  # the library makes files for their owner only


def write_config(
    folder: Path, shape: ModelShape, calibrated: Calibrated, source: Mapping[str, object] | None
) -> None:
    """config.json: the source's own, or one that says the shape."""
    config = dict(source) if source is not None else config_of(shape)
    modules = [name.removesuffix(WEIGHT) for name in calibrated.kept]
    config["quantization_config"] = quantization_config(["lm_head", *modules])
    config["torch_dtype"] = "bfloat16"
    config.pop("dtype", None)
    _write_json(folder / "config.json", config)


def write_generation(folder: Path, shape: ModelShape, defaults: SamplingDefaults) -> None:
    """generation_config.json for a source that has none of its own."""
    body: dict[str, object] = {"eos_token_id": list(shape.end_ids)}
    if shape.bos_id is not None:
        body["bos_token_id"] = shape.bos_id
    neutral = SamplingDefaults()
    for key in SamplingDefaults.__struct_fields__:
        if getattr(defaults, key) != getattr(neutral, key):
            body[key] = getattr(defaults, key)
    _write_json(folder / "generation_config.json", body)


def config_of(shape: ModelShape) -> dict[str, object]:
    """The shape as config.json says it; `Invalid` for one that it cannot say."""
    if shape.rope_divisors:
        raise unsupported(
            "quantizing a GGUF file with rotary factors of its own, which config.json cannot say: "
            "this model"
        )
    config: dict[str, object] = {
        "model_type": shape.family,
        "architectures": [ARCHITECTURES[shape.family]],
        "num_hidden_layers": shape.num_layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context_max,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied_embeddings,
        "hidden_act": "silu",
        "attention_bias": shape.attention_bias,
        "mlp_bias": shape.mlp_bias,
        "eos_token_id": list(shape.end_ids),
    }
    if shape.bos_id is not None:
        config["bos_token_id"] = shape.bos_id
    if shape.rope_scaling is not None:
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": shape.rope_scaling.factor,
            "low_freq_factor": shape.rope_scaling.low_freq_factor,
            "high_freq_factor": shape.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": shape.rope_scaling.original_context,
        }
    return config


def _stored(calibrated: Calibrated) -> dict[str, _Array]:
    """Every tensor as the file holds it."""
    stored: dict[str, _Array] = {}
    for name, (codes, scales) in calibrated.tensors.integers.items():
        stored[name] = codes
        stored[f"{name.removesuffix(WEIGHT)}{SCALE}"] = scales.reshape(-1, 1)
    for name, values in calibrated.tensors.values.items():
        kept = np.float32 if name.endswith(".bias") else ml_dtypes.bfloat16
        stored[name] = np.ascontiguousarray(values.astype(kept))
    return stored


def _write_json(path: Path, body: Mapping[str, object]) -> None:
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
