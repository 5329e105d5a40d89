"""How the reference device wants weights: the float32 numbers that their formats mean."""

import math

import numpy as np
from numpy.typing import NDArray

from tercet.program.formats import Format
from tercet.program.packing import StoredWeight, WeightSource, exact_in
from tercet.program.program import Program
from tercet.program.recipes import Recipe, evaluate


class Float32Packer:
    """Row-major float32, 4 bytes a number (`program.packing.Packer`)."""

    name = "float32"
    plain = Format.F32

    def arrange(self, program: Program) -> Program:
        return program

    def packed_bytes(self, recipe: Recipe) -> int:
        return 4 * math.prod(recipe.shape)

    def pack(self, recipe: Recipe, source: WeightSource) -> NDArray[np.uint8]:
        values = evaluate(recipe, source.read, exact=exact_in(recipe, source))
        values = np.ascontiguousarray(values)
        return values.reshape(-1).view(np.uint8)


def float32_values(weight: StoredWeight) -> NDArray[np.float32]:
    """The numbers of a weight that `Float32Packer` stored, in place."""
    return weight.data.view(np.float32).reshape(weight.shape)
