"""A one-layer program that is attention alone, and its formula in float64."""

from collections.abc import Sequence as Listing

import numpy as np
from single_operations import VOCAB, _input, _weight, operation

from tercet.devices.reference import ReferenceDevice, ReferenceExecutable
from tercet.program.operations import Append, Attend, Embed, Linear, Rows, Sample
from tercet.program.program import assemble
from tercet.program.tensors import Axis, Kind, RowGroup, Tensor

SCALE = 0.7


def heads_of(heads: int, kv_heads: int, head_dim: int) -> dict[str, np.ndarray]:
    """Tables of queries, keys and values by token."""
    chance = np.random.default_rng(heads)
    sizes = {"q": heads, "k": kv_heads, "v": kv_heads}
    return {
        name: chance.standard_normal((VOCAB, count, head_dim)).astype(np.float32)
        for name, count in sizes.items()
    }


def ids_of(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB, count)]


def executable(heads: int, kv_heads: int, head_dim: int) -> ReferenceExecutable:
    """Logits of a row are what its heads attended to, one after another."""
    weights = heads_of(heads, kv_heads, head_dim)
    size = heads * head_dim
    weights["eye"] = np.eye(size, dtype=np.float32).reshape(size, heads, head_dim)
    state = Tensor(
        name="kv",
        kind=Kind.STATE,
        dims=(2, kv_heads, head_dim),
        axes=(Axis.FUSED, Axis.KV_HEADS, Axis.HEAD),
        group=RowGroup.CONTEXT,
    )
    given = [_input("ids"), state, *(_weight(name, one.shape) for name, one in weights.items())]
    program = assemble("attention", given, [
        *(operation(Embed(), ("ids", name), f"{name}.x") for name in "qkv"),
        operation(Append(), ("kv", "k.x", "v.x")),
        operation(Attend(SCALE), ("q.x", "kv"), "seen"),
        operation(Linear(), ("seen", "eye"), "flat"),
        operation(Rows(), ("flat",), "logits", group=RowGroup.LOGITS),
        operation(Sample(), ("logits",), "tokens", group=RowGroup.LOGITS),
    ])  # fmt: skip
    return ReferenceDevice().compile(program, weights)


def exact_attention(ids: Listing[int], tables: dict[str, np.ndarray]) -> np.ndarray:
    """[tokens, heads x head_dim] in float64, one head and one row after another."""
    q, k, v = (tables[name][list(ids)].astype(np.float64) for name in "qkv")
    share = q.shape[1] // k.shape[1]
    out = np.empty_like(q)
    for head in range(q.shape[1]):
        scores = SCALE * q[:, head] @ k[:, head // share].T
        scores[np.triu_indices(len(ids), 1)] = -np.inf
        weight = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weight / weight.sum(axis=1, keepdims=True) @ v[:, head // share]
    return out.reshape(len(ids), -1)
