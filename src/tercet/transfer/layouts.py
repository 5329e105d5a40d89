"""How keys and values lie in blocks, as data: fields of axes. Nothing here knows a device.

    a field      what it holds          axes, outer to inner (stride in bytes)
    keys         one number each        layer 24576 | head 8192 | dim/2 64 | token 4 | dim%2 2
    values                              layer 24576 | head 8192 | token/2 256 | dim 4 | token%2 2

An index that appears in several axes is written with several digits: `dim/2` and `dim%2` are two
axes of `dim`. The byte of (layer, head, token, dim) is `at` plus digit times stride of every axis.
So blocks of other sizes, of fewer heads or of another order are other numbers, and what has to be
copied where follows from them (`transfer.plans`).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from math import prod

from msgspec import Struct

from tercet.base.errors import must
from tercet.messages.kv import KvLayout


class Index(StrEnum):
    LAYER = "layer"
    HEAD = "head"
    """Of the rank's own heads, from 0."""
    TOKEN = "token"  # noqa: S105  no secret
    DIM = "dim"


class Axis(Struct, frozen=True, array_like=True):
    """One digit of an index; the axes of one index stand from its highest digit to its lowest."""

    of: Index
    count: int
    stride: int


class Field(Struct, frozen=True, kw_only=True):
    """One kind of number in a block."""

    name: str
    item_bytes: int
    at: int
    axes: tuple[Axis, ...]

    def count(self, of: Index) -> int:
        """Give how many values an index has."""
        return prod(axis.count for axis in self.axes if axis.of is of)

    def offset(self, layer: int, head: int, token: int, dim: int) -> int:
        """Give the byte in the block at which a number begins."""
        rest = {Index.LAYER: layer, Index.HEAD: head, Index.TOKEN: token, Index.DIM: dim}
        at = self.at
        for axis in reversed(self.axes):
            rest[axis.of], digit = divmod(rest[axis.of], axis.count)
            at += digit * axis.stride
        must(not any(rest.values()), f"{self.name}: no ({layer}, {head}, {token}, {dim})")
        return at


class Form(Struct, frozen=True, kw_only=True):
    """All fields of a block; no two overlap, and together they fill it."""

    fields: tuple[Field, ...]
    block_bytes: int


def heads_of(layout: KvLayout) -> range:
    """Give the heads of the model that a rank keeps: equal shares, or, where there are more ranks
    than heads, one head on several neighbouring ranks.
    """
    heads, tp = layout.kv_heads, layout.tp
    must(0 <= layout.rank < tp, f"rank {layout.rank} of {tp}")
    if tp <= heads:
        must(heads % tp == 0, f"{heads} heads on {tp} ranks")
        each = heads // tp
        return range(layout.rank * each, (layout.rank + 1) * each)
    must(tp % heads == 0, f"{heads} heads on {tp} ranks")
    head = layout.rank // (tp // heads)
    return range(head, head + 1)


def _packed(layout: KvLayout, *, item_bytes: int, scales: bool) -> Form:
    """The native device's: words of four bytes, of neighbouring dims in keys and of neighbouring
    tokens in values; behind the numbers of a part their scales, one for each token.
    """
    tokens, per_word = layout.block_tokens, 4 // item_bytes
    must(tokens % per_word == 0, f"blocks of {tokens} tokens in words of {per_word}")
    dim = -(-layout.head_dim // 16) * 16
    numbers = dim * tokens * item_bytes
    part = numbers + (4 * tokens if scales else 0)
    heads = len(heads_of(layout))
    outer = (
        Axis(Index.LAYER, layout.layers, 2 * heads * part),
        Axis(Index.HEAD, heads, 2 * part),
    )
    keys = (
        Axis(Index.DIM, dim // per_word, 4 * tokens),
        Axis(Index.TOKEN, tokens, 4),
        Axis(Index.DIM, per_word, item_bytes),
    )
    values = (
        Axis(Index.TOKEN, tokens // per_word, 4 * dim),
        Axis(Index.DIM, dim, 4),
        Axis(Index.TOKEN, per_word, item_bytes),
    )
    fields = [
        Field(name="keys", item_bytes=item_bytes, at=0, axes=outer + keys),
        Field(name="values", item_bytes=item_bytes, at=part, axes=outer + values),
    ]
    if scales:
        one = (Axis(Index.TOKEN, tokens, 4), Axis(Index.DIM, 1, 0))
        fields += [
            Field(name="key scales", item_bytes=4, at=numbers, axes=outer + one),
            Field(name="value scales", item_bytes=4, at=part + numbers, axes=outer + one),
        ]
    return Form(fields=tuple(fields), block_bytes=layout.layers * 2 * heads * part)


def _plain(layout: KvLayout) -> Form:
    """The reference device's: [layers, keys and values, heads, tokens, dims] of float32."""
    heads = len(heads_of(layout))
    line = 4 * layout.block_tokens * layout.head_dim
    axes = (
        Axis(Index.LAYER, layout.layers, 2 * heads * line),
        Axis(Index.HEAD, heads, line),
        Axis(Index.TOKEN, layout.block_tokens, 4 * layout.head_dim),
        Axis(Index.DIM, layout.head_dim, 4),
    )
    fields = (
        Field(name="keys", item_bytes=4, at=0, axes=axes),
        Field(name="values", item_bytes=4, at=heads * line, axes=axes),
    )
    return Form(fields=fields, block_bytes=layout.layers * 2 * heads * line)


_FORMS: Mapping[str, Callable[[KvLayout], Form]] = {
    "bf16": lambda layout: _packed(layout, item_bytes=2, scales=False),
    "int8": lambda layout: _packed(layout, item_bytes=1, scales=True),
    "float32": _plain,
}


@lru_cache(maxsize=64)
def form_of(layout: KvLayout) -> Form | None:
    """Give how blocks of a layout lie; None where nobody but their device knows."""
    make = _FORMS.get(layout.dtype)
    form = None if make is None else make(layout)
    must(
        form is None or form.block_bytes == layout.block_bytes,
        f"blocks of {layout.block_bytes} bytes, {form and form.block_bytes} as {layout.dtype}",
    )
    return form


def block_bytes_of(layout: KvLayout) -> int:
    """Give the size that blocks of a layout must have; `block_bytes` itself is not looked at."""
    make = _FORMS.get(layout.dtype)
    return layout.block_bytes if make is None else make(layout).block_bytes
