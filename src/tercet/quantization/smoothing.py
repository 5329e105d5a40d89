"""The scale of each input channel that loses least when input and matrices are rounded to INT8.

    s* = argmin over the grid of sum over readers |Q(x / s) Q(W s)^T - x W^T|^2 / |x W^T|^2

(adaptive scale search and outlier suppression of CloudMatrix384, section 4.5 of the paper; the
form of the candidates is SmoothQuant's, Xiao et al. 2023, equation 4: s = a^alpha / w^(1 - alpha).)
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tercet.devices.contract import F32
from tercet.program.rounding import symmetric8
from tercet.quantization.sites import Absorber, Site

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""0 leaves activations as they are, 1 makes all channels equally large."""
SCALE_MAX = 1e4
"""Bounds of a scale: what is multiplied by it must stay far from the ends of bfloat16's steps."""
_TINY = 1e-12


def round8(values: F32) -> F32:
    """Rows as INT8 can say them."""
    codes, scale = symmetric8(values)
    rounded: F32 = codes * scale
    return rounded


class OutputError:
    """The error of rounding an input and the matrices that read it, against the exact outputs."""

    def __init__(self, x: F32, matrices: Sequence[F32]) -> None:
        self._x = x
        self._matrices = matrices
        self._exact = [x @ matrix.T for matrix in matrices]
        self._power = [max(float(np.square(one).sum()), _TINY) for one in self._exact]

    def of(self, scale: F32 | None = None) -> float:
        """Mean over the matrices of |Q(x / s) Q(W s)^T - x W^T|^2 / |x W^T|^2."""
        x = round8(self._x if scale is None else self._x / scale)
        scaled = self._matrices if scale is None else [one * scale for one in self._matrices]
        return self.of_rounded(x, [round8(one) for one in scaled])

    def of_rounded(self, x: F32, matrices: Sequence[F32]) -> float:
        """The same for an input and matrices that are rounded already."""
        errors = [
            float(np.square(x @ matrix.T - exact).sum()) / power
            for matrix, exact, power in zip(matrices, self._exact, self._power, strict=True)
        ]
        return sum(errors) / len(errors)


def find_scale(site: Site, x: F32, matrices: Sequence[F32]) -> F32:
    """[K] the best scale, constant over channels that share an entry of the absorber; all ones
    where nothing helps or nothing can take it up.
    """
    best = np.ones(site.columns, np.float32)
    if site.absorber is None:
        return best
    error = OutputError(x, matrices)
    least = error.of()
    for scale in _candidates(site.absorber, x, matrices):
        tried = error.of(scale)
        if tried < least:
            best, least = scale, tried
    return best


def absorb(
    tensors: Mapping[str, F32], readers: Sequence[str], absorber: Absorber, scale: F32
) -> dict[str, F32]:
    """The changed tensors: columns of the readers times the scale, the absorber divided by it."""
    changed = {name: tensors[name] * scale for name in readers}
    entries = np.ones(len(tensors[absorber.tensors[0]]), np.float32)
    entries[absorber.entry] = scale
    for name in absorber.tensors:
        tensor = tensors[name]
        changed[name] = tensor / entries.reshape(-1, *[1] * (tensor.ndim - 1))
    return changed


def _candidates(absorber: Absorber, x: F32, matrices: Sequence[F32]) -> Iterator[F32]:
    count = int(absorber.entry.max()) + 1
    weight = np.max([np.abs(matrix).max(axis=0) for matrix in matrices], axis=0)
    weight = _shared(weight, absorber, count)
    magnitudes = np.abs(x)
    for measured in (magnitudes.max(axis=0), np.sqrt(np.square(x).mean(axis=0))):
        activation = _shared(measured, absorber, count)
        used = (activation > _TINY) & (weight > _TINY)
        if not used.any():
            continue
        for alpha in ALPHAS:
            power = np.zeros(count)
            logs = alpha * np.log(activation[used]) - (1 - alpha) * np.log(weight[used])
            power[used] = logs - logs.mean()
            scale = np.exp(np.clip(power, -np.log(SCALE_MAX), np.log(SCALE_MAX)))
            yield scale[absorber.entry].astype(np.float32)


def _shared(channels: F32, absorber: Absorber, count: int) -> F32:
    """[entries] the largest of the channels that an entry makes."""
    largest = np.zeros(count, np.float32)
    np.maximum.at(largest, absorber.entry, channels)
    return largest
