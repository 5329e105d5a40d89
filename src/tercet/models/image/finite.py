"""A checkpoint as packers read it: a weight that is not a number is refused, by name."""

import numpy as np
from numpy.typing import NDArray

from tercet.models.checkpoints.contract import F32, Checkpoint, TensorInfo, bad_checkpoint

_PIECE = 1 << 22


class FiniteSource:
    """`program.packing.WeightSource` over a checkpoint; `Invalid` for NaN and infinity."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def describe(self, name: str) -> TensorInfo:
        """How the tensor is stored."""
        return self._checkpoint.describe(name)

    def read(self, name: str) -> F32:
        """The tensor's values."""
        array = self._checkpoint.read(name)
        self._check(name, array)
        return array

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """The tensor's GGUF blocks; what they mean is finite."""
        self._check(name, self._checkpoint.read(name))
        return self._checkpoint.read_blocks(name)

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        """The tensor's integers and their finite scales."""
        numbers, scales = self._checkpoint.read_int8(name)
        self._check(name, scales)
        return numbers, scales

    def _check(self, name: str, array: F32) -> None:
        flat = array.reshape(-1)
        for start in range(0, flat.size, _PIECE):
            finite = np.isfinite(flat[start : start + _PIECE])
            if not finite.all():
                place = start + int(np.argmin(finite))
                index = [int(axis) for axis in np.unravel_index(place, array.shape)]
                raise bad_checkpoint(
                    self._checkpoint.describe(name).file,
                    f"holds tensor {name!r} with the value {flat[place]} at {index}",
                )
