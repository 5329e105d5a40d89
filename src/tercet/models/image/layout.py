"""The layout of a model image.

    0         8         12        16            48          header_end
    | TERCETMI| version | length  | sha256 of   | header    | zeros | weight | zeros | ... | seal |
    |         |         | of hdr  | the header  | (msgpack) |       | at a multiple of 64 |      |

The seal, written last, is the SHA-256 of all data before it; a file without it was never finished.
An image is named by its key, which is also in the header: the checkpoint's content, the recipes
of the weights, who packed them and this layout's version. Equal recipes are stored once.
"""

import hashlib
import struct
from typing import BinaryIO

import msgspec

from tercet.base.model import NEUTRAL, ModelShape, SamplingDefaults
from tercet.program.formats import Format
from tercet.program.packing import ALIGNMENT

MAGIC = b"TERCETMI"
LAYOUT_VERSION = 3
PREFIX = struct.Struct("<8sII32s")
SEAL_BYTES = 32
HEADER_BYTES_MAX = 64 << 20
PIECE_BYTES = 1 << 22


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One weight: what it is and where it lies. Weights of equal recipes have equal offsets."""

    name: str
    shape: tuple[int, ...]
    format: Format
    offset: int
    size: int


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is beside its weights: enough to serve it where its checkpoint is not."""

    kind: str
    content: str
    """Digest of the checkpoint."""
    shape: ModelShape
    formats: dict[str, Format]
    """Of each matrix of the unfused program; empty: nothing was quantized."""
    defaults: SamplingDefaults = NEUTRAL


class ImageHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What an image says of itself."""

    key: str
    source: str
    """What the one who built it called the model."""
    quantization: str
    packer: str
    about: About
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


def read_header(file: BinaryIO) -> ImageHeader | None:
    """The header of an image of the right size; None for anything else that the file may be."""
    file.seek(0)
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        return None
    magic, version, length, digest = PREFIX.unpack(prefix)
    if magic != MAGIC or version != LAYOUT_VERSION or length > HEADER_BYTES_MAX:
        return None
    body = file.read(length)
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        header = msgspec.msgpack.decode(body, type=ImageHeader)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return header if header.size == file.seek(0, 2) and _fits(header) else None


def read_layout(file: BinaryIO) -> int | None:
    """The version of the layout that the file says it has; None for what is no image at all."""
    file.seek(0)
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        return None
    return int(PREFIX.unpack(prefix)[1])


def is_sealed(file: BinaryIO, size: int) -> bool:
    """True if a file of this size ends with the digest of what comes before."""
    digest = hashlib.sha256()
    piece = bytearray(PIECE_BYTES)
    left = size - SEAL_BYTES
    file.seek(0)
    while left > 0:
        got = file.readinto(memoryview(piece)[: min(left, len(piece))])  # type: ignore[attr-defined]
        if not got:
            return False
        digest.update(memoryview(piece)[:got])
        left -= got
    return file.read(SEAL_BYTES + 1) == digest.digest()


def _fits(header: ImageHeader) -> bool:
    """True if every weight lies within the file, at a place where one may begin."""
    return all(
        one.offset % ALIGNMENT == 0
        and 0 <= one.offset <= one.offset + one.size <= header.size - SEAL_BYTES
        for one in header.weights
    )
