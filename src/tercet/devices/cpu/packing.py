"""How the native device stores weights: panels of 32 outputs (native/formats.h).

The layout is the same for all instruction sets, so one image serves every machine.
"""

import math
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.program.formats import Format
from tercet.program.gate import gate
from tercet.program.packing import WeightSource, exact_in
from tercet.program.program import Program
from tercet.program.recipes import (
    Ckpt,
    Concat,
    Interleave,
    Quantized,
    Recipe,
    Reshape,
    Slice,
    evaluate,
    format_of,
    interleaved,
    parts_of,
)
from tercet.program.rounding import symmetric8

LAYOUT = "panels-1"
"""Changes whenever the bytes of a packed weight do."""
U8 = NDArray[np.uint8]
_Rows = tuple[NDArray[np.generic], ...]
"""Parallel arrays over the rows of a weight: blocks, or integers and scales."""


class CpuPacker:
    """Matrices in panels, vectors in float32 (`program.packing.Packer`)."""

    name = f"cpu {LAYOUT}"
    plain = Format.BF16

    def __init__(self, native: ModuleType) -> None:
        self._native = native

    def arrange(self, program: Program) -> Program:
        """Gate and up become one linear."""
        return gate(program)

    def packed_bytes(self, recipe: Recipe) -> int:
        form = format_of(recipe)
        if form is Format.F32:
            return 4 * math.prod(recipe.shape)
        n, k = matrix_shape(recipe)
        return int(self._native.packed_bytes(native_format(self._native, form), n, k))

    def pack(self, recipe: Recipe, source: WeightSource) -> U8:
        form = format_of(recipe)
        n, k = matrix_shape(recipe) if form is not Format.F32 else (0, 0)
        packed: U8
        if form is Format.F32:
            values = evaluate(recipe, source.read)
            packed = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        elif form is Format.BF16:
            values = evaluate(recipe, source.read, exact=exact_in(recipe, source))
            packed = self._native.pack_bf16(np.ascontiguousarray(values).reshape(n, k))
        elif form is Format.INT8:
            packed = self._native.pack_int8(*_rows(recipe, source, form))
        else:
            (blocks,) = _rows(recipe, source, form)
            packed = self._native.pack_blocks(native_format(self._native, form), blocks, k)
        return packed


def native_format(native: ModuleType, form: Format) -> object:
    """The native module's own value."""
    return getattr(native.Format, form.name)


def matrix_shape(recipe: Recipe) -> tuple[int, int]:
    """Outputs and inputs [N, K] of a quantized weight, whatever its dimensions."""
    columns = {math.prod(one.shape[1:]) for one in _quantized(recipe)}
    must(len(columns) == 1, f"rows of {recipe} differ")
    k = columns.pop()
    return math.prod(recipe.shape) // k, k


def _quantized(recipe: Recipe) -> list[Quantized]:
    match recipe:
        case Quantized():
            return [recipe]
        case Concat() | Interleave():
            return [one for part in parts_of(recipe) for one in _quantized(part)]
        case Reshape(source, _) | Slice(source, _, _):
            return _quantized(source)
        case _:
            must(False, f"{recipe} is not quantized")
            return []


def _rows(recipe: Recipe, source: WeightSource, form: Format) -> _Rows:
    """The stored rows [N, ...] of a weight in INT8 (integers, scales) or in blocks."""
    match recipe:
        case Quantized(inner, _):
            return _stored(inner, source, form)
        case Reshape(inner, _):
            return _rows(inner, source, form)  # the same rows, seen as heads
        case Slice(inner, start, stop):
            rows = _rows(inner, source, form)
            each = len(rows[0]) // inner.shape[0]
            return tuple(array[start * each : stop * each] for array in rows)
        case Concat(parts):
            held = [_rows(part, source, form) for part in parts]
            return tuple(np.concatenate(arrays) for arrays in zip(*held, strict=True))
        case Interleave(first, second):
            pair = (_rows(first, source, form), _rows(second, source, form))
            return tuple(interleaved(one, two) for one, two in zip(*pair, strict=True))
        case _:
            must(False, f"{recipe} is not quantized")
            return ()


def _stored(recipe: Recipe, source: WeightSource, form: Format) -> _Rows:
    """As the checkpoint has them where it stores this format, else made of the values."""
    held = isinstance(recipe, Ckpt) and source.describe(recipe.name).dtype == form.tensor_type
    if form is Format.INT8:
        if held and isinstance(recipe, Ckpt):
            return source.read_int8(recipe.name)
        values = evaluate(recipe, source.read)
        codes, scales = symmetric8(values.reshape(len(values), -1))
        return codes.astype(np.int8), scales.reshape(-1)
    if held and isinstance(recipe, Ckpt):
        return (source.read_blocks(recipe.name),)
    import gguf

    values = evaluate(recipe, source.read)
    kind = gguf.GGMLQuantizationType[form.tensor_type]
    blocks = gguf.quantize(values.reshape(len(values), -1), kind)
    return (np.ascontiguousarray(blocks).view(np.uint8).reshape(len(values), -1),)
