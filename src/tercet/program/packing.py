"""The seam between the bytes of a weight and who makes and reads them.

A device says how it wants its weights stored (a `Packer`), the model image stores them so, and
the device reads them in place (`StoredWeight`). What the bytes mean is the device's own business.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tercet.program.formats import Format
from tercet.program.program import Program
from tercet.program.recipes import Recipe, format_of, sources

ALIGNMENT = 64
"""Of the first byte of every stored weight: a cache line, and the widest vector."""


class StoredType(Protocol):
    """What is known of a tensor of a checkpoint (`models.checkpoints.contract.TensorInfo`)."""

    @property
    def dtype(self) -> str:
        """Name of the element type in the file: `F32`, `BF16`, `Q4_1`, `I8`, ..."""
        ...


class WeightSource(Protocol):
    """The tensors of a checkpoint as a packer reads them; all that it gives is finite."""

    def describe(self, name: str) -> StoredType:
        """How the tensor is stored."""
        ...

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor's values, row-major, the caller's to keep."""
        ...

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """[rows, bytes of a row] of a tensor in a GGUF block type; `Invalid` for another one."""
        ...

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """[N, K] and the scales [N] of a tensor stored so; `Invalid` for another one."""
        ...


class Packer(Protocol):
    """How a device wants its weights stored."""

    @property
    def name(self) -> str:
        """Differs wherever the bytes do: device, layout, instruction set. A part of an image's
        key, shown to people.
        """
        ...

    @property
    def plain(self) -> Format:
        """The format of linears that nobody asked to quantize."""
        ...

    def arrange(self, program: Program) -> Program:
        """The fused program as this device runs it best; its weights are what is packed."""
        ...

    def packed_bytes(self, recipe: Recipe) -> int:
        """The size that `pack` gives; known before anything is read."""
        ...

    def pack(self, recipe: Recipe, source: WeightSource) -> NDArray[np.uint8]:
        """[packed_bytes] the weight as the device reads it."""
        ...


class StoredWeight(Struct, frozen=True):
    """A weight as a packer left it."""

    data: NDArray[np.uint8]
    """[bytes] read-only, begins at a multiple of `ALIGNMENT`."""
    shape: tuple[int, ...]
    """Of the values that the bytes mean."""
    format: Format


def exact_in(recipe: Recipe, source: WeightSource) -> frozenset[str]:
    """The tensors that the recipe reads which are stored in the format that it wants: their numbers
    are taken as they are (`evaluate`), not rounded again.
    """
    wanted = format_of(recipe).tensor_type
    names = {one.name for one in sources(recipe)}
    return frozenset(name for name in names if source.describe(name).dtype == wanted)


Weights = Mapping[str, StoredWeight]
"""By the names that a program gives them."""
