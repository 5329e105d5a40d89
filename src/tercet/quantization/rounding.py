"""Matrices in INT8 for known inputs: the scale of each row that loses least.

The error of a row w whose stored values are v, over inputs with the Gram matrix H = x^T x, is
(v - w) H (v - w)^T. A smaller scale than largest magnitude / 127 clips few values and rounds all
others finer.

Compensation of errors by later columns (GPTQ, Frantar et al. 2023) was tried and is left out: with
8 bits and a few hundred rows it fits the rows and not the model (docs/quantization.md).
"""

import numpy as np

from tercet.devices.contract import F32
from tercet.program.rounding import INT8_MAX, codes8

RATIOS = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8)
"""Of the scale that clips nothing."""


def gram(x: F32) -> F32:
    """H [K, K] of inputs [rows, K], for a mean over rows."""
    product: F32 = x.T @ x / np.float32(len(x))
    return product


def plain_scales(matrix: F32) -> F32:
    """[N, 1] scales that clip nothing."""
    scales: F32 = np.abs(matrix).max(axis=1, keepdims=True) / np.float32(INT8_MAX)
    return scales


def clipped_scales(matrix: F32, products: F32) -> F32:
    """[N, 1] the scales of the best ratios, row by row; `products` is H."""
    plain = plain_scales(matrix)
    best, least = plain.copy(), np.full(len(matrix), np.inf, np.float32)
    for ratio in RATIOS:
        scales = plain * np.float32(ratio)
        off = codes8(matrix, scales) * scales - matrix
        error = ((off @ products) * off).sum(axis=1)
        better = error < least
        best[better], least[better] = scales[better], error[better]
    return best
