"""Products with weights that are stored in a format other than float32: their specification.

BF16      y = bf16(x) W                  sums in float32
INT8      y = float32(sum of xq Wq) * (s_x * s_W)      xq, s_x: `symmetric8` of the whole row;
                                         the sum of integers is exact
blocks    y = sum over blocks b of 32, ascending, in float32, of (xq_b W_b) * s_x,b
                                         xq, s_x: `symmetric8` of 32 neighbours of the row
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from tercet.devices.contract import F32
from tercet.program.formats import ACTIVATION_BLOCK, Format
from tercet.program.operations import Linear
from tercet.program.program import Program
from tercet.program.rounding import grid8, symmetric8, to_bfloat16

Product = Callable[[F32, F32], None]
"""Called with x [rows, K] and y [rows, N], writes y."""

_EXACT_COLUMNS = 1024
"""So many products of 8-bit integers have a sum that float32 holds exactly: 1024 x 127^2 < 2^24."""


def products_of(program: Program, weights: Mapping[str, F32]) -> dict[str, Product]:
    """The product with each quantized weight that a linear operation reads, by its name."""
    products: dict[str, Product] = {}
    for operation in program.operations:
        name = operation.inputs[1] if isinstance(operation.attributes, Linear) else ""
        if name and name not in products:
            columns = math.prod(program.tensors[operation.inputs[0]].dims)
            matrix = weights[name].reshape(-1, columns)
            product = _product(program.tensors[name].format, matrix)
            if product is not None:
                products[name] = product
    return products


def _product(form: Format, matrix: F32) -> Product | None:
    """The product with a matrix [N, K] stored so; None for float32."""
    if form is Format.F32:
        return None
    if form is Format.BF16:
        return _Bfloat16(matrix)
    if form is Format.INT8:
        return _Int8(matrix)
    return _Blocks(matrix)


class _Bfloat16:
    def __init__(self, matrix: F32) -> None:
        self._matrix = matrix

    def __call__(self, x: F32, y: F32) -> None:
        y[...] = to_bfloat16(x) @ self._matrix.T


class _Int8:
    """Integers are held as float32, so that a BLAS multiplies them, in pieces that stay exact."""

    def __init__(self, matrix: F32) -> None:
        codes, scales = grid8(matrix)
        self._scales = scales.reshape(-1)
        self._pieces = [
            (slice(start, start + _EXACT_COLUMNS), codes[:, start : start + _EXACT_COLUMNS])
            for start in range(0, codes.shape[1], _EXACT_COLUMNS)
        ]

    def __call__(self, x: F32, y: F32) -> None:
        codes, scale = symmetric8(np.ascontiguousarray(x))
        if len(self._pieces) == 1:
            np.multiply(codes @ self._pieces[0][1].T, scale * self._scales, out=y)
            return
        # Float64 holds the sum of pieces exactly and is rounded once, as int32 would be.
        total = np.zeros(y.shape, np.float64)
        for columns, piece in self._pieces:
            total += codes[:, columns] @ piece.T
        np.multiply(total.astype(np.float32), scale * self._scales, out=y)


class _Blocks:
    def __init__(self, matrix: F32) -> None:
        self._matrix = matrix

    def __call__(self, x: F32, y: F32) -> None:
        rows, columns = x.shape
        blocks = np.ascontiguousarray(x).reshape(rows, -1, ACTIVATION_BLOCK)
        codes, scale = symmetric8(blocks)
        y[...] = 0.0
        for block in range(columns // ACTIVATION_BLOCK):
            part = self._matrix[:, block * ACTIVATION_BLOCK : (block + 1) * ACTIVATION_BLOCK]
            y += (codes[:, block] @ part.T) * scale[:, block]
