"""Matrices in INT8 for known inputs: columns take up the errors of those before them.

Over inputs x the output error of a row w whose stored values are v is (v - w) H (v - w)^T with
H = x^T x. GPTQ (Frantar et al. 2023, algorithm 1) rounds one column after another, and lets those
that are not rounded yet take up the error as well as they can.

Clipping a row's largest values so that all others are rounded finer was tried, row by row over a
grid with the same measure, and is left out: with 8 bits it changed nothing (docs/quantization.md).
"""

import numpy as np
from numpy.typing import NDArray

from tercet.devices.contract import F32
from tercet.program.rounding import INT8_MAX, codes8

DAMPING = 0.1
"""Added to the diagonal of H, as a share of its mean: measured on rows that H did not see, 0.01
fits the rows it saw."""
_BLOCK = 128
_F64 = NDArray[np.float64]


def plain_scales(matrix: F32) -> F32:
    """[N, 1] scales that clip nothing."""
    scales: F32 = np.abs(matrix).max(axis=1, keepdims=True) / np.float32(INT8_MAX)
    return scales


def compensated(matrix: F32, scales: F32, factor: F32) -> F32:
    """[N, K] integers (as float32) whose values under the scales lose little together; `factor`
    is that of H (`inverse_factor`).
    """
    columns = matrix.shape[1]
    left = matrix.copy()
    codes = np.empty_like(matrix)
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        errors = np.empty((len(matrix), stop - start), np.float32)
        for column in range(start, stop):
            values = left[:, column : column + 1]
            code = codes8(values, scales)
            error = (values - code * scales) / factor[column, column]
            left[:, column + 1 : stop] -= error * factor[column, column + 1 : stop]
            codes[:, column : column + 1] = code
            errors[:, column - start : column - start + 1] = error
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return codes


def inverse_factor(products: F32) -> F32:
    """The upper Cholesky factor of the inverse of H [K, K], H made well-conditioned."""
    exact: _F64 = products.astype(np.float64)
    damping = DAMPING * float(np.diag(exact).mean())
    damped = exact + np.eye(len(exact)) * (damping if damping > 0 else 1.0)
    factor: F32 = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    return factor
