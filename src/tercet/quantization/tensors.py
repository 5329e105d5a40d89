"""The tensors of a checkpoint while they change, and a program that runs over them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import InvariantBroken
from tercet.base.model import ModelShape
from tercet.devices.contract import F32
from tercet.models.families.build import build
from tercet.models.quantization import choose_formats
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.packing import exact_in
from tercet.program.program import Program
from tercet.program.quantize import quantize
from tercet.program.recipes import Recipe, evaluate

Integers = tuple[NDArray[np.int8], F32]
"""[N, K] and scales [N]."""


@dataclass(frozen=True, slots=True)
class _Held:
    dtype: str


class Tensors:
    """Tensors by canonical name, some of them in INT8 (a `program.packing.WeightSource`)."""

    def __init__(
        self, values: Mapping[str, F32], integers: Mapping[str, Integers] | None = None
    ) -> None:
        self.values = dict(values)
        self.integers = dict(integers or {})

    def describe(self, name: str) -> _Held:
        """INT8, or float32."""
        return _Held("I8" if name in self.integers else "F32")

    def read(self, name: str) -> F32:
        """The values that are meant."""
        if name not in self.integers:
            return self.values[name]
        codes, scales = self.integers[name]
        return codes.astype(np.float32) * scales[:, None]

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """No tensor is held so."""
        raise InvariantBroken(f"{name} is not held in blocks")

    def read_int8(self, name: str) -> Integers:
        """Integers and scales."""
        return self.integers[name]


def exact_program(shape: ModelShape, tensors: Tensors) -> tuple[Program, dict[str, F32]]:
    """The unfused program in float32 with its weights."""
    program = build(shape)
    return program, _weights(program, tensors)


def rounded_program(
    shape: ModelShape, tensors: Tensors, quantization: str
) -> tuple[Program, dict[str, F32]]:
    """The program that a device with BF16 as its plain format would run for `--quantization`."""
    program = build(shape)
    formats = choose_formats(
        program,
        quantization,
        tensor_type=lambda name: tensors.describe(name).dtype,
        plain=Format.BF16,
    )
    program = fuse(quantize(program, formats))
    return program, _weights(program, tensors)


def read_all(
    names: Sequence[str], read: Callable[[str], F32], advance: Callable[[], object]
) -> Tensors:
    """All tensors of a checkpoint in memory; `advance` is called after each."""
    values = {}
    for name in names:
        values[name] = read(name)
        advance()
    return Tensors(values)


def _weights(program: Program, tensors: Tensors) -> dict[str, F32]:
    """Equal recipes share memory."""
    made: dict[Recipe, F32] = {}
    for recipe in program.weights.values():
        if recipe not in made:
            made[recipe] = evaluate(recipe, tensors.read, exact=exact_in(recipe, tensors))
    return {name: made[recipe] for name, recipe in program.weights.items()}
