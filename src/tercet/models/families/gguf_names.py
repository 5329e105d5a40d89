"""GGUF names of tensors and the canonical (Hugging Face) ones, and llama's permutation undone.

llama.cpp's converter stores q and k of the `llama` architecture with the two halves of every head
interleaved, because its kernel rotates neighbours (convert_hf_to_gguf.py, `LlamaModel.permute`).
Our programs rotate halves, as Hugging Face's do, so q and k are put back while reading.
"""

import re
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must

_Element = TypeVar("_Element", np.float32, np.uint8)
_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_BACK = {hf: gguf for gguf, hf in _LAYER.items()}
_TOP_BACK = {hf: gguf for gguf, hf in _TOP.items()}
_PERMUTED = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies (llama3 scaling): part of the shape, not a weight."""


def gguf_tensor(name: str) -> str | None:
    """The canonical name of a GGUF tensor; None for one that no program of ours reads."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{_LAYER[part]}.{kind}" if part in _LAYER else None
    if match := re.fullmatch(r"(\w+)\.(weight|bias)", name):
        part, kind = match.groups()
        return f"{_TOP[part]}.{kind}" if part in _TOP else None
    return None


def gguf_name(canonical: str) -> str:
    """The GGUF name of a tensor that a program reads."""
    if match := re.fullmatch(r"model\.layers\.(\d+)\.([\w.]+)\.(weight|bias)", canonical):
        layer, part, kind = match.groups()
        return f"blk.{layer}.{_LAYER_BACK[part]}.{kind}"
    part, _, kind = canonical.rpartition(".")
    must(part in _TOP_BACK, f"no program reads a tensor {canonical}")
    return f"{_TOP_BACK[part]}.{kind}"


def permuted_heads(
    name: str, *, architecture: str, num_heads: int, num_kv_heads: int
) -> int | None:
    """Heads over which this GGUF tensor is interleaved (see `unpermute`); None: it is not."""
    match = _PERMUTED.fullmatch(name)
    if architecture != "llama" or match is None:
        return None
    return num_heads if match.group(1) == "q" else num_kv_heads


def unpermute(array: NDArray[_Element], num_heads: int) -> NDArray[_Element]:
    """Rows of every head put from interleaved (x0 y0 x1 y1 ...) back into halves (x.. y..)."""
    half = array.shape[0] // num_heads // 2
    split = array.reshape(num_heads, half, 2, *array.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)
