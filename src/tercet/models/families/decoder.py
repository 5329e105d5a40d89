"""The pre-norm decoder with rotary positions and gated MLP that all families of today are."""

import math

from tercet.base.model import ModelShape
from tercet.models.families.rope import divisors
from tercet.program.operations import (
    Add,
    Angles,
    Append,
    Attend,
    Attributes,
    Embed,
    Glu,
    Linear,
    Norm,
    Operation,
    Rope,
    Rows,
    Sample,
)
from tercet.program.program import Program, assemble
from tercet.program.recipes import Ckpt, Recipe, Reshape
from tercet.program.tensors import Axis, Dtype, Kind, RowGroup, Tensor

_Dims = tuple[tuple[int, Axis], ...]


class _Writer:
    """Collects the given tensors and the operations of a program, in order."""

    def __init__(self, shape: ModelShape) -> None:
        self.hidden: _Dims = ((shape.hidden, Axis.HIDDEN),)
        self.query: _Dims = ((shape.num_heads, Axis.HEADS), (shape.head_dim, Axis.HEAD))
        self.key: _Dims = ((shape.num_kv_heads, Axis.KV_HEADS), (shape.head_dim, Axis.HEAD))
        self.ffn: _Dims = ((shape.ffn, Axis.FFN),)
        self.vocab: _Dims = ((shape.vocab, Axis.VOCAB),)
        self.given: list[Tensor] = []
        self.operations: list[Operation] = []

    def input(self, name: str) -> str:
        self.given.append(
            Tensor(
                name=name,
                kind=Kind.INPUT,
                dims=(),
                axes=(),
                group=RowGroup.STEP,
                dtype=Dtype.I32,
            )
        )
        return name

    def state(self, name: str) -> str:
        dims = (2, *(size for size, _ in self.key))
        axes = (Axis.FUSED, *(axis for _, axis in self.key))
        self.given.append(
            Tensor(name=name, kind=Kind.STATE, dims=dims, axes=axes, group=RowGroup.CONTEXT)
        )
        return name

    def weight(self, name: str, ckpt: str, *parts: _Dims) -> str:
        """A weight whose checkpoint tensor has one dimension for each of the parts."""
        dims = tuple(size for part in parts for size, _ in part)
        axes = tuple(axis for part in parts for _, axis in part)
        stored = tuple(math.prod(size for size, _ in part) for part in parts)
        source = Ckpt(ckpt, stored)
        recipe: Recipe = source if stored == dims else Reshape(source, dims)
        self.given.append(Tensor(name=name, kind=Kind.WEIGHT, dims=dims, axes=axes, recipe=recipe))
        return name

    def op(
        self,
        attributes: Attributes,
        inputs: tuple[str, ...],
        *outputs: str,
        group: RowGroup = RowGroup.STEP,
    ) -> str:
        self.operations.append(
            Operation(attributes=attributes, inputs=inputs, outputs=outputs, group=group)
        )
        return outputs[0] if outputs else ""

    def linear(self, name: str, x: str, ckpt: str, *, dims: tuple[_Dims, _Dims], bias: bool) -> str:
        """The name of W x (+ b) with weights `name` and `name_bias`; dims are those out and in."""
        inputs: tuple[str, ...] = (x, self.weight(name, f"{ckpt}.weight", *dims))
        if bias:
            inputs = (*inputs, self.weight(f"{name}_bias", f"{ckpt}.bias", dims[0]))
        return self.op(Linear(bias=bias), inputs, f"{name}_out")


def decoder(shape: ModelShape) -> Program:
    """The step of a decoder: embed, layers, then logits and tokens for the rows that want them."""
    write = _Writer(shape)
    ids, positions = write.input("ids"), write.input("positions")
    table = write.weight("embedding", "model.embed_tokens.weight", write.vocab, write.hidden)
    x = write.op(Embed(), (ids, table), "embedded")
    angles = Angles(shape.head_dim, shape.rope_theta, divisors(shape))
    cs = write.op(angles, (positions,), "angles")
    for layer in range(shape.num_layers):
        x = _mlp(write, shape, layer, _attention(write, shape, layer, x=x, cs=cs))
    x = write.op(Rows(), (x,), "rows", group=RowGroup.LOGITS)
    scale = write.weight("norm", "model.norm.weight", write.hidden)
    x = write.op(Norm(shape.norm_eps), (x, scale), "normed", group=RowGroup.LOGITS)
    if not shape.tied_embeddings:
        table = write.weight("head", "lm_head.weight", write.vocab, write.hidden)
    x = write.op(Linear(), (x, table), "logits", group=RowGroup.LOGITS)
    write.op(Sample(), (x,), "tokens", group=RowGroup.LOGITS)
    return assemble(shape.family, write.given, write.operations)


def _attention(write: _Writer, shape: ModelShape, layer: int, *, x: str, cs: str) -> str:
    at, ckpt = f"layers.{layer}", f"model.layers.{layer}.self_attn"
    scale = write.weight(
        f"{at}.norm1", f"model.layers.{layer}.input_layernorm.weight", write.hidden
    )
    normed = write.op(Norm(shape.norm_eps), (x, scale), f"{at}.normed1")
    bias = shape.attention_bias
    q, k, v = (
        write.linear(
            f"{at}.{part}", normed, f"{ckpt}.{part}_proj", dims=(dims, write.hidden), bias=bias
        )
        for part, dims in (("q", write.query), ("k", write.key), ("v", write.key))
    )
    if shape.qk_norm:
        head = (write.key[1],)
        scales = [
            write.weight(f"{at}.{part}_norm", f"{ckpt}.{part}_norm.weight", head) for part in "qk"
        ]
        q = write.op(Norm(shape.norm_eps), (q, scales[0]), f"{at}.q_normed")
        k = write.op(Norm(shape.norm_eps), (k, scales[1]), f"{at}.k_normed")
    write.op(Rope(), (cs, q, k), f"{at}.q_rope", f"{at}.k_rope")
    state = write.state(f"{at}.kv")
    write.op(Append(), (state, f"{at}.k_rope", v))
    attend = Attend(1.0 / math.sqrt(shape.head_dim))
    seen = write.op(attend, (f"{at}.q_rope", state), f"{at}.attended")
    out = write.linear(
        f"{at}.o", seen, f"{ckpt}.o_proj", dims=(write.hidden, write.query), bias=shape.output_bias
    )
    return write.op(Add(), (x, out), f"{at}.x1")


def _mlp(write: _Writer, shape: ModelShape, layer: int, x: str) -> str:
    at, ckpt = f"layers.{layer}", f"model.layers.{layer}"
    scale = write.weight(f"{at}.norm2", f"{ckpt}.post_attention_layernorm.weight", write.hidden)
    normed = write.op(Norm(shape.norm_eps), (x, scale), f"{at}.normed2")
    gate, up = (
        write.linear(
            f"{at}.{part}",
            normed,
            f"{ckpt}.mlp.{part}_proj",
            dims=(write.ffn, write.hidden),
            bias=shape.mlp_bias,
        )
        for part in ("gate", "up")
    )
    product = write.op(Glu(), (gate, up), f"{at}.glu")
    down = write.linear(
        f"{at}.down",
        product,
        f"{ckpt}.mlp.down_proj",
        dims=(write.hidden, write.ffn),
        bias=shape.mlp_bias,
    )
    return write.op(Add(), (x, down), f"{at}.x2")
