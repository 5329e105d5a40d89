"""Small checkpoints in every layout, made from `random:` models, whose tensors are known."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from tercet.base.model import ModelShape
from tercet.models.checkpoints.contract import F32, Checkpoint
from tercet.models.families.gguf_names import gguf_name
from tercet.models.sources import open_checkpoint

TINY = "random:llama?layers=2&hidden=64&heads=4&kv_heads=2&head_dim=16&ffn=96&seed=1"
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
Change = Callable[[str, F32], F32]


def tensors_of(checkpoint: Checkpoint) -> dict[str, F32]:
    return {name: checkpoint.read(name) for name in checkpoint.tensor_names()}


def tiny_tensors(source: str = TINY) -> dict[str, F32]:
    return tensors_of(open_checkpoint(source))


def hf_config(shape: ModelShape) -> dict[str, object]:
    return {
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
        "eos_token_id": 257,
    }


def write_folder(
    folder: Path,
    source: str = TINY,
    *,
    tensors: Mapping[str, np.ndarray] | None = None,
    config: Mapping[str, object] | None = None,
    num_shards: int = 1,
) -> Path:
    """A folder in Hugging Face layout with the tensors of a random model, or the given ones."""
    checkpoint = open_checkpoint(source)
    tensors = dict(tensors if tensors is not None else tensors_of(checkpoint))
    folder.mkdir(parents=True, exist_ok=True)
    described = hf_config(checkpoint.facts().shape) | dict(config or {})
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [259, 257]}))
    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names = list(tensors)
    weight_map = {}
    for number in range(num_shards):
        shard = f"model-{number + 1:05}-of-{num_shards:05}.safetensors"
        part = names[number::num_shards]
        save_file({name: tensors[name] for name in part}, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def interleave(array: F32, heads: int) -> F32:
    """What llama.cpp's converter does to q and k of the llama architecture."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def gguf_writer(path: Path, shape: ModelShape) -> gguf.GGUFWriter:
    """A writer with the metadata of this shape and no tensor yet."""
    writer = gguf.GGUFWriter(path, shape.family)
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.context_max)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}é" for index in range(shape.vocab)])
    writer.add_token_types([1] * shape.vocab)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(
    path: Path,
    source: str = TINY,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    change: Change = lambda _, array: array,
    also: Callable[[gguf.GGUFWriter], object] = lambda _: None,
) -> Path:
    """A GGUF file with the tensors of a random model; matrices are of the given type."""
    checkpoint = open_checkpoint(source)
    shape = checkpoint.facts().shape
    writer = gguf_writer(path, shape)
    also(writer)
    for name, array in tensors_of(checkpoint).items():
        changed = change(name, array)
        if shape.family == "llama" and "q_proj" in name:
            changed = interleave(changed, shape.num_heads)
        if shape.family == "llama" and "k_proj" in name:
            changed = interleave(changed, shape.num_kv_heads)
        type_of = kind if changed.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quantize(changed, type_of), raw_dtype=type_of)
    finish(writer)
    return path
