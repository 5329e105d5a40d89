"""An image that a process has mapped: its pages are shared, and nobody removes it meanwhile."""

import contextlib
import hashlib
import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from tercet.models.image.layout import ImageHeader
from tercet.program.packing import StoredWeight

_MADV_POPULATE_READ = 22
"""All pages are mapped at once rather than one by one at the first step (Linux 5.14)."""


class MappedImage:
    """A whole image, read-only. Its weights stay valid when the file is removed or replaced.

    `file` holds a shared lock (`flock`). The map keeps the open file description and with it the
    lock, so that the image is in use as long as this object or one of its weights lives.
    """

    def __init__(self, path: Path, header: ImageHeader, file: BinaryIO) -> None:
        self.path = path
        self.header = header
        self._map = mmap.mmap(file.fileno(), header.size, access=mmap.ACCESS_READ)
        # Huge pages make reading all weights a quarter faster. Kernels without them say no.
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_HUGEPAGE)
            self._map.madvise(_MADV_POPULATE_READ)

    def whole(self) -> NDArray[np.uint8]:
        """[size] uint8: the image itself, for hosts that lack it."""
        return np.frombuffer(self._map, np.uint8)

    def digest(self) -> str:
        """A digest of the model and its weights, in hex; it does not depend on who built the image
        and under which name. Reads all of it.
        """
        header = self.header
        digest = hashlib.sha256(msgspec.msgpack.encode((header.about, header.weights)))
        for offset, size in dict.fromkeys((one.offset, one.size) for one in header.weights):
            digest.update(memoryview(self._map)[offset : offset + size])
        return digest.hexdigest()[:32]

    def weights(self) -> Mapping[str, StoredWeight]:
        """The weights by name, in place."""
        return MappingProxyType(
            {
                one.name: StoredWeight(
                    np.frombuffer(self._map, np.uint8, one.size, one.offset),
                    one.shape,
                    one.format,
                )
                for one in self.header.weights
            }
        )
