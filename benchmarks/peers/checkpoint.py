"""Our checkpoint as a folder in Hugging Face layout, which the peers' own tools convert.

Transformers' import of GGUF takes a wrong tokenizer from this file; ours is written in its place.
Weights are the file's numbers in float32, so that no peer starts from a second rounding.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.numpy import save_file

from benchmarks.models import opened
from tercet.base.model import ModelShape
from tercet.models.sources import open_checkpoint
from tercet.text.gguf_source import read_gguf
from tercet.text.vocabulary import Vocabulary

DONE = "written"
"""This file is there once the folder is whole."""


def write_folder(folder: Path) -> Path:
    """The folder with config, weights and tokenizer; written if it is not there yet."""
    if (folder / DONE).exists():
        return folder
    model = opened()
    checkpoint = open_checkpoint(model.location)
    source = checkpoint.facts().tokenizer
    if not isinstance(source, Mapping):
        raise TypeError(f"{model.location} has no tokenizer in its metadata")
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = read_gguf(source)
    save_file(
        {name: checkpoint.read(name) for name in checkpoint.tensor_names()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    tokenizer = json.loads(vocabulary.definition)
    tokenizer["decoder"] = _byte_level()
    template = source.get("tokenizer.chat_template")
    _write(folder / "config.json", _config(model.shape))
    _write(folder / "tokenizer.json", tokenizer)
    _write(folder / "tokenizer_config.json", _tokenizer_config(vocabulary, template))
    _write(
        folder / "generation_config.json",
        {"bos_token_id": vocabulary.bos_id, "eos_token_id": vocabulary.eos_id},
    )
    (folder / DONE).touch()
    return folder


def _config(shape: ModelShape) -> Mapping[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context_max,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": shape.bos_id,
        "eos_token_id": shape.end_ids[0],
        "torch_dtype": "float32",
    }


def _tokenizer_config(vocabulary: Vocabulary, template: object) -> Mapping[str, object]:
    named = {name: vocabulary.named[name] for name in sorted(vocabulary.named)}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
        **named,
    }


def _byte_level() -> Mapping[str, object]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False))
