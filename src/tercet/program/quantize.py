"""Rewrite: matrices are stored in other formats; products then take their inputs accordingly.

Only what `Linear` multiplies with and `Embed` looks up changes; norms and biases stay float32.
Apply before `fuse`.
"""

import math
from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from tercet.base.errors import InvariantBroken, must
from tercet.program.formats import Format
from tercet.program.operations import Embed, Linear
from tercet.program.program import Program, assemble
from tercet.program.recipes import Ckpt, Concat, Interleave, Quantized, Recipe, Reshape, Slice
from tercet.program.tensors import Kind, Tensor


def quantize(program: Program, formats: Mapping[str, Format]) -> Program:
    """The same program with the named weights in these formats; others stay as they are."""
    known = matrices(program)
    for name in formats:
        must(name in known, f"{name} is no matrix of {program.name}")
    given = [
        _stored(tensor, formats[tensor.name], known[tensor.name])
        if tensor.name in formats
        else tensor
        for tensor in program.tensors.values()
        if tensor.kind is not Kind.VALUE
    ]
    return assemble(program.name, given, program.operations)


def matrices(program: Program) -> dict[str, int]:
    """The weights that a format can be chosen for, with the length K of their rows [N, K]."""
    found: dict[str, int] = {}
    for operation in program.operations:
        if isinstance(operation.attributes, Embed):
            found[operation.inputs[1]] = math.prod(program.tensors[operation.outputs[0]].dims)
        elif isinstance(operation.attributes, Linear):
            found[operation.inputs[1]] = math.prod(program.tensors[operation.inputs[0]].dims)
    return found


def _stored(tensor: Tensor, form: Format, columns: int) -> Tensor:
    must(columns % form.block == 0, f"{tensor} has rows of {columns}, not for {form}")
    if form is Format.F32 or tensor.recipe is None:
        return tensor
    return replace(tensor, recipe=_wrap(tensor.recipe, form))


def _wrap(recipe: Recipe, form: Format) -> Recipe:
    """The recipe over quantized checkpoint tensors: their rows are the output channels, while
    those of a reshaped weight may be whole heads.
    """
    match recipe:
        case Ckpt():
            return Quantized(recipe, form)
        case Reshape(source, shape):
            return Reshape(_wrap(source, form), shape)
        case Slice(source, start, stop):
            return Slice(_wrap(source, form), start, stop)
        case Concat(parts):
            return Concat(tuple(_wrap(part, form) for part in parts))
        case Interleave(first, second):
            return Interleave(_wrap(first, form), _wrap(second, form))
        case Quantized():
            raise InvariantBroken(f"{recipe} is quantized already")
        case _:
            assert_never(recipe)
