"""SmolLM2-135M-Instruct in transformers and as our program, from the same GGUF file.

The weights are taken out of the file by the `gguf` package, apart from our own reader, and given
to transformers as a float32 state dict. Prompts are token ids: both sides get the same ones.
"""

import os
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest
from float32_models import open_float32
from transformers_models import Ours, torch, transformers

from tercet.base.errors import Invalid
from tercet.devices.reference import ReferenceDevice
from tercet.models.config import ModelCacheConfig
from tercet.models.opened import OpenedModel
from tercet.text.load import load_codec

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tercet"
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HEADS = {"attn_q": 9, "attn_k": 3}
HEAD_DIM = 64


@cache
def opened() -> OpenedModel:
    """The model, fetched into the model cache if it is not there."""
    try:
        return open_float32("smollm2", cache=ModelCacheConfig(folder=CACHE))
    except Invalid as error:
        pytest.skip(f"SmolLM2 cannot be had: {error.sentence}")


@cache
def mine() -> Ours:
    model = opened()
    return Ours(ReferenceDevice().compile(model.program, model.weights()))


@cache
def theirs():
    """Transformers' Llama with the file's dequantized weights, float32, eager attention."""
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=HEAD_DIM,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config).eval()
    state = {_name(one.name): torch.from_numpy(_weights(one)) for one in _tensors()}
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["lm_head.weight"]
    assert not missing.unexpected_keys
    model.tie_weights()
    return model


def prompts(lengths: list[int]) -> list[list[int]]:
    """Pieces of English text; every fourth is of random tokens."""
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    codec = load_codec(opened().tokenizer_source)
    english = codec.encode(text)
    chance = np.random.default_rng(1)
    found = []
    for index, length in enumerate(lengths):
        if index % 4 == 3:
            found.append([int(one) for one in chance.integers(0, 49152, length)])
        else:
            start = int(chance.integers(0, len(english) - length))
            found.append(english[start : start + length])
    return found


def _tensors() -> list[gguf.ReaderTensor]:
    (path,) = (CACHE / "models").glob("*mol*.gguf")
    return gguf.GGUFReader(path).tensors


def _weights(tensor: gguf.ReaderTensor) -> np.ndarray:
    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    part = tensor.name.split(".")[-2]
    if part in HEADS:
        # The converter put pairs next to each other; back into halves.
        pairs = values.reshape(HEADS[part], HEAD_DIM // 2, 2, -1)
        values = pairs.transpose(0, 2, 1, 3).reshape(values.shape)
    return np.ascontiguousarray(values)


def _name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"
    return {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }[name]
