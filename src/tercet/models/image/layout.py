"""The layout of a model image, and opening one.

    0         8         12        16            48          header_end
    | TERCETMI| version | length  | sha256 of   | header    | zeros | weight | zeros | ... | seal |
    |         |         | of hdr  | the header  | (msgpack) |       | at a multiple of 64 |      |

The seal, written last, is the SHA-256 of all data before it; a file without it was never finished.
An image is named by its key, which is also in the header: the checkpoint's content, the recipes
of the weights and this layout's version. Equal recipes are stored once.
"""

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import Invalid
from tercet.models.digests import DigestCache, file_state

F32 = NDArray[np.float32]
MAGIC = b"TERCETMI"
LAYOUT_VERSION = 1
PREFIX = struct.Struct("<8sII32s")
ALIGNMENT = 64
"""A cache line, and the widest vector."""
SEAL_BYTES = 32
HEADER_BYTES_MAX = 64 << 20


class Stored(msgspec.Struct, frozen=True):
    """One weight: where it lies. Weights of equal recipes have equal offsets."""

    name: str
    shape: tuple[int, ...]
    offset: int


class ImageHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What an image says of itself."""

    key: str
    weights: tuple[Stored, ...]
    size: int
    """Of the whole file, the seal included."""


def encode_header(header: ImageHeader) -> bytes:
    """The bytes with which an image begins."""
    body = msgspec.msgpack.encode(header)
    digest = hashlib.sha256(body).digest()
    return PREFIX.pack(MAGIC, LAYOUT_VERSION, len(body), digest) + body


def aligned(place: int) -> int:
    """The next place at which a weight may begin."""
    return -(-place // ALIGNMENT) * ALIGNMENT


def read_image_header(path: Path) -> ImageHeader | None:
    """The header of a whole image; None for anything else that may lie there."""
    try:
        with path.open("rb") as file:
            prefix = file.read(PREFIX.size)
            if len(prefix) < PREFIX.size:
                return None
            magic, version, length, digest = PREFIX.unpack(prefix)
            if magic != MAGIC or version != LAYOUT_VERSION or length > HEADER_BYTES_MAX:
                return None
            body = file.read(length)
            size = file.seek(0, 2)
    except OSError:
        return None
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        header = msgspec.msgpack.decode(body, type=ImageHeader)
    except msgspec.MsgspecError:
        return None
    return header if header.size == size else None


def image_is_whole(path: Path, key: str, digests: DigestCache) -> bool:
    """True if the file is the finished image of this key, its data as they were written.

    Data are summed once for each state of the file, not at every start.
    """
    header = read_image_header(path)
    if header is None or header.key != key:
        return False
    try:
        state = file_state(path)
        if digests.recall(path, state) == key:
            return True
        whole = _sealed(path, header.size)
        if whole and file_state(path) == state:
            digests.remember(path, state, key)
    except OSError:
        return False
    return whole


def map_image(path: Path) -> Mapping[str, F32]:
    """The weights by name, mapped read-only: their pages are shared by all processes.

    The arrays stay valid when the file is replaced or removed meanwhile.
    """
    header = read_image_header(path)
    if header is None:
        raise Invalid(
            f"The model image {path} is gone or damaged; open the model again to rebuild it.",
            code="no_model_image",
            parameter=str(path),
        )
    mapped = np.memmap(path, np.uint8, mode="r")
    weights: dict[str, F32] = {}
    for stored in header.weights:
        size = 4 * int(np.prod(stored.shape, dtype=np.int64))
        flat = np.frombuffer(mapped, np.float32, size // 4, stored.offset)
        weights[stored.name] = flat.reshape(stored.shape)
    return MappingProxyType(weights)


def _sealed(path: Path, size: int) -> bool:
    """True if the file ends with the digest of what comes before."""
    digest = hashlib.sha256()
    piece = bytearray(1 << 22)
    left = size - SEAL_BYTES
    with path.open("rb") as file:
        while left > 0:
            got = file.readinto(memoryview(piece)[: min(left, len(piece))])
            if not got:
                return False
            digest.update(memoryview(piece)[:got])
            left -= got
        return file.read(SEAL_BYTES + 1) == digest.digest()
