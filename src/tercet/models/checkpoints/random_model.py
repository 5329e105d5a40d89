"""A tiny model whose tensors are made from a seed, for tests and for trying a server.

Values come from raw words of the counter-based Philox generator (Salmon et al., 2011), so they are
the same on every machine and with every version of NumPy. Scales keep the residual stream of order
one and spread the logits, so that near-ties of the two best are rare.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tercet.base.model import ModelShape
from tercet.models.checkpoints.contract import (
    F32,
    CheckpointFacts,
    TensorInfo,
    missing_tensor,
    stored_otherwise,
)

LOGITS_SPREAD = 4.0


class RandomCheckpoint:
    """Tensors of given names and shapes, filled from a seed when they are read."""

    def __init__(
        self, source: str, shape: ModelShape, seed: int, tensors: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._source = source
        self._shape = shape
        self._seed = seed
        self._tensors = tensors

    def facts(self) -> CheckpointFacts:
        """What is known without making a tensor."""
        return CheckpointFacts(
            kind="random",
            path=self._source,
            shape=self._shape,
            tokenizer="bytes",
            files=(),
            identity=f"random 1 {self._seed} {self._shape}",
        )

    def tensor_names(self) -> Sequence[str]:
        """Canonical names of all tensors."""
        return list(self._tensors)

    def describe(self, name: str) -> TensorInfo:
        """Shape and type of one tensor."""
        if name not in self._tensors:
            raise missing_tensor(self._source, name)
        return TensorInfo(name=name, shape=self._tensors[name], dtype="F32", file=self._source)

    def read(self, name: str) -> F32:
        """The tensor: uniform values of the deviation that suits its place."""
        shape = self.describe(name).shape
        key = int.from_bytes(hashlib.sha256(f"{self._seed} {name}".encode()).digest()[:16], "big")
        words = np.random.Philox(key=key).random_raw(math.prod(shape))
        unit = (words >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
        centre, deviation = self._scale(name, shape)
        return (centre + unit.reshape(shape) * np.float32(deviation * math.sqrt(3))).astype(
            np.float32
        )

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """There are no blocks in this layout."""
        raise stored_otherwise(self.describe(name), "in blocks")

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        """No tensor is stored so."""
        raise stored_otherwise(self.describe(name), "in 8-bit integers")

    def _scale(self, name: str, shape: tuple[int, ...]) -> tuple[np.float32, float]:
        """Mean and standard deviation of the tensor's values."""
        if name.endswith("norm.weight"):
            return np.float32(1), 0.1
        if name.endswith(".bias"):
            return np.float32(0), 0.1
        logits = "lm_head" if not self._shape.tied_embeddings else "embed_tokens"
        if logits in name:
            return np.float32(0), LOGITS_SPREAD / math.sqrt(shape[-1])
        if "embed_tokens" in name:
            return np.float32(0), 1.0
        return np.float32(0), 1 / math.sqrt(shape[-1])
