"""One safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes.

Format: https://github.com/huggingface/safetensors#format. The header is read here and not by the
library because a file that is cut or lies must be refused with the name of the tensor.

    0        8              8 + n                        end of file
    | n: u64 | JSON, n bytes | a | b | c | ...           |
                             0 <- data_offsets, no holes ->
"""

import math
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import Invalid
from tercet.models.checkpoints.contract import F32, TensorInfo, bad_checkpoint
from tercet.models.checkpoints.files import read_piece, size_of

HEADER_BYTES_MAX = 100_000_000
"""As in the reference implementation."""
DTYPES = ("F64", "F32", "F16", "BF16")
"""Element types that are read as numbers of their own; others are quantized or not weights."""
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1} | {
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
    "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip


class Entry(msgspec.Struct):
    """A tensor of the header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class SafetensorsFile:
    """A file whose header is known and consistent with the file's size."""

    def __init__(self, path: Path, entries: dict[str, Entry], data_start: int) -> None:
        self.path = path
        self.entries = entries
        self._data_start = data_start

    def describe(self, name: str) -> TensorInfo:
        """Shape and type of a tensor that the file holds."""
        entry = self.entries[name]
        return TensorInfo(
            name=name, shape=tuple(entry.shape), dtype=entry.dtype, file=str(self.path)
        )

    def read(self, name: str) -> F32:
        """The tensor in float32."""
        entry = self.entries[name]
        if entry.dtype not in DTYPES:
            raise bad_checkpoint(
                str(self.path),
                f"holds tensor {name!r} as {entry.dtype}; served are {', '.join(DTYPES)}",
            )
        piece = self._bytes(name)
        if entry.dtype == "BF16":  # the upper half of a float32
            wide = np.frombuffer(piece, "<u2").astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32).reshape(entry.shape)
        array = np.frombuffer(piece, f"<f{SIZES[entry.dtype]}")
        return array.astype(np.float32, copy=False).reshape(entry.shape)

    def read_integers(self, name: str) -> NDArray[np.int8]:
        """A tensor of type I8."""
        return np.frombuffer(self._bytes(name), np.int8).reshape(self.entries[name].shape)

    def _bytes(self, name: str) -> bytearray:
        start, end = self.entries[name].data_offsets
        return read_piece(self.path, self._data_start + start, end - start, f"tensor {name!r}")


def open_safetensors(path: Path) -> SafetensorsFile:
    """The file with a checked header: every tensor lies inside it, none overlaps another."""
    size = size_of(path)
    if size < 8:
        raise bad_checkpoint(str(path), f"is no safetensors file: it has {size} bytes")
    length = int.from_bytes(read_piece(path, 0, 8, "the header's length"), "little")
    if length > HEADER_BYTES_MAX:
        raise bad_checkpoint(str(path), f"is no safetensors file: a header of {length} bytes")
    if length > size - 8:
        raise bad_checkpoint(
            str(path), f"is truncated: its header has {length} bytes, the file {size}"
        )
    header = read_piece(path, 8, length, "the header")
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(value, type=Entry) for name, value in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_checkpoint(
            str(path), f"is no safetensors file: its header is not valid ({error})"
        ) from None
    try:
        _check_layout(entries, size - 8 - length)
    except Invalid as error:
        raise bad_checkpoint(str(path), error.sentence) from None
    return SafetensorsFile(path, entries, 8 + length)


def _check_layout(entries: dict[str, Entry], data_size: int) -> None:
    """Refuse offsets that leave the file, overlap, leave holes or disagree with the shapes."""
    place = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        start, end = entry.data_offsets
        if any(extent < 0 for extent in entry.shape):
            raise Invalid(f"gives tensor {name!r} the shape {entry.shape}")
        if end > data_size:
            raise Invalid(
                f"is truncated: tensor {name!r} ends at byte {end} of the data, "
                f"of which {data_size} are there"
            )
        if start != place or end < start:
            raise Invalid(
                f"is damaged: tensor {name!r} lies at bytes {start} to {end} of the data, "
                f"expected from {place}"
            )
        element = SIZES.get(entry.dtype)
        if element is not None and math.prod(entry.shape) * element != end - start:
            raise Invalid(
                f"is damaged: tensor {name!r} has shape {entry.shape} of {entry.dtype} "
                f"in {end - start} bytes"
            )
        place = end
    if place != data_size:
        raise Invalid(f"is damaged: {data_size - place} bytes belong to no tensor")
