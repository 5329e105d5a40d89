"""The header of one GGUF file: metadata and the table of tensors, read quickly and distrustfully.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
The reader of the `gguf` package makes several arrays for each string of a vocabulary, which takes
seconds for a model of 100 MB, and trusts lengths; this one takes tens of milliseconds.

    magic version num_tensors num_pairs | pairs: key type value ... | tensors: name dims type offset
    ... | padding | data: each tensor at data_start + offset, a multiple of the alignment
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from tercet.models.checkpoints.contract import bad_checkpoint
from tercet.models.checkpoints.files import read_piece, size_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DIMENSIONS_MAX = 4
ELEMENTS_MAX = 1 << 24
"""Entries of an array of metadata; the largest vocabularies have 2**18."""
NAME_BYTES_MAX = 1 << 16
WINDOW_BYTES = 16 << 20
"""How much of a file is read at first: the header of most."""
HEADER_BYTES_MAX = 1 << 30
ALIGNMENT_DEFAULT = 32
LONG_BYTES_MIN = 1 << 12
"""Metadata of so many bytes is a vocabulary or its like: seldom looked at, slow to read."""
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1",
            10: "<u8", 11: "<i8", 12: "<f8"}  # fmt: skip


class GgufTensor(Struct, frozen=True):
    """A row of the table of tensors, not yet checked against the file's size."""

    name: str
    dims: tuple[int, ...]
    """As in the file: the fastest dimension first."""
    type_number: int
    offset: int
    """From the start of the data."""


class GgufHeader(Struct, frozen=True):
    """Everything before the data."""

    metadata: dict[str, object]
    tensors: tuple[GgufTensor, ...]
    data_start: int
    alignment: int
    file_size: int
    long: dict[str, tuple[int, int]]
    """Where the values of long metadata lie in the file: start, end."""


class Metadata(Mapping[str, object]):
    """Metadata whose long values are read from the file when somebody looks at them."""

    def __init__(
        self, path: Path, short: Mapping[str, object], long: Mapping[str, tuple[int, int]]
    ) -> None:
        self._path = path
        self._long = long
        self._known = dict(short)

    def __getitem__(self, key: str) -> object:
        if key not in self._known and key in self._long:
            self._known[key] = _read_value(self._path, key, *self._long[key])
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        return key in self._known or key in self._long

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *self._long]))

    def __len__(self) -> int:
        return len(dict.fromkeys([*self._known, *self._long]))


def _read_value(path: Path, key: str, start: int, end: int) -> object:
    """The value that lies there."""
    cursor = _Cursor(read_piece(path, start, end - start, f"the metadata {key!r}"), end - start, 0)
    try:
        return cursor.value(cursor.integer("<I"), key)
    except _DamagedError as error:
        raise bad_checkpoint(str(path), str(error)) from None


def read_header(path: Path) -> GgufHeader:
    """The header of the file; `Invalid` where it is cut, contradicts itself or isn't GGUF."""
    size = size_of(path)
    if size < 24:
        raise bad_checkpoint(str(path), f"is no GGUF file: it has {size} bytes")
    window = min(size, WINDOW_BYTES)
    while True:
        try:
            return _parse(read_piece(path, 0, window, "the header"), size)
        except _WindowTooSmallError:
            if window >= HEADER_BYTES_MAX:
                raise bad_checkpoint(str(path), f"has a header over {window} bytes") from None
            window = min(size, 4 * window)
        except _DamagedError as error:
            raise bad_checkpoint(str(path), str(error)) from None


class _WindowTooSmallError(Exception):
    """The header goes on behind what was read of the file."""


class _DamagedError(Exception):
    """What is wrong with the file, as the end of a sentence."""


def _parse(view: bytearray, size: int) -> GgufHeader:
    if view[:4] != MAGIC:
        raise _DamagedError("is no GGUF file: it does not begin with GGUF")
    cursor = _Cursor(view, size, 4)
    version = cursor.integer("<I")
    if version not in VERSIONS:
        other = "big-endian" if version & 0xFFFF == 0 else f"version {version}"
        raise _DamagedError(f"is {other} GGUF; read are little-endian versions 2 and 3")
    num_tensors, num_pairs = cursor.integer("<Q"), cursor.integer("<Q")
    metadata: dict[str, object] = {}
    long: dict[str, tuple[int, int]] = {}
    for _ in range(num_pairs):
        key = cursor.string("a key of the metadata", NAME_BYTES_MAX)
        if key in metadata:
            raise _DamagedError(f"is damaged: it holds the metadata key {key!r} twice")
        start = cursor.place
        metadata[key] = cursor.value(cursor.integer("<I"), key)
        if cursor.place - start >= LONG_BYTES_MIN:
            long[key] = start, cursor.place
    tensors: dict[str, GgufTensor] = {}
    for _ in range(num_tensors):
        name = cursor.string("the name of a tensor", NAME_BYTES_MAX)
        if name in tensors:
            raise _DamagedError(f"is damaged: it holds tensor {name!r} twice")
        num_dims = cursor.integer("<I")
        if not 1 <= num_dims <= DIMENSIONS_MAX:
            raise _DamagedError(f"gives tensor {name!r} {num_dims} dimensions")
        dims = tuple(cursor.integer("<Q") for _ in range(num_dims))
        tensors[name] = GgufTensor(name, dims, cursor.integer("<I"), cursor.integer("<Q"))
    alignment = metadata.get("general.alignment", ALIGNMENT_DEFAULT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _DamagedError(f"is damaged: general.alignment is {alignment!r}, no power of two")
    data_start = -(-cursor.place // alignment) * alignment
    return GgufHeader(metadata, tuple(tensors.values()), data_start, alignment, size, long)


class _Cursor:
    """A place in the header that never leaves the file."""

    def __init__(self, view: bytearray, size: int, place: int) -> None:
        self._view = view
        self._size = size
        self.place = place

    def integer(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._view, self._take(struct.calcsize(form), "it"))
        return int(value)

    def string(self, what: str, bytes_max: int | None = None) -> str:
        length = self.integer("<Q")
        if bytes_max is not None and length > bytes_max:
            raise _DamagedError(f"is damaged: {what} has {length} bytes")
        start = self._take(length, what)
        try:
            return self._view[start : start + length].decode()
        except UnicodeDecodeError:
            raise _DamagedError(f"is damaged: {what} is not UTF-8") from None

    def value(self, kind: int, key: str, *, nested: bool = False) -> object:
        if kind == _STRING:
            return self.string(f"the metadata {key!r}")
        if kind in _SCALARS:
            return self._numbers(kind, 1, key)[0]
        if kind != _ARRAY:
            raise _DamagedError(f"is damaged: the metadata {key!r} has the unknown type {kind}")
        if nested:
            raise _DamagedError(
                f"holds arrays of arrays in the metadata {key!r}, which is not read"
            )
        element, count = self.integer("<I"), self.integer("<Q")
        if count > ELEMENTS_MAX:
            raise _DamagedError(f"is damaged: the metadata {key!r} has {count} entries")
        if element in _SCALARS:
            return self._numbers(element, count, key)
        if element == _STRING:
            return self._strings(count, key)
        return [self.value(element, key, nested=True) for _ in range(count)]

    def _numbers(self, kind: int, count: int, key: str) -> list[object]:
        dtype = np.dtype(_SCALARS[kind])
        start = self._take(count * dtype.itemsize, f"the metadata {key!r}")
        array = np.frombuffer(self._view[start : self.place], dtype)
        values: list[object] = (array != 0 if kind == _BOOL else array).tolist()
        return values

    def _strings(self, count: int, key: str) -> list[str]:
        """The hot loop: a vocabulary and its merges are hundreds of thousands of short strings."""
        view, place = self._view, self.place
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        end = place
        try:
            for _ in range(count):
                end = place + 8 + length_at(view, place)[0]
                if end > len(view):
                    break
                strings.append(view[place + 8 : end].decode())
                place = end
        except struct.error:  # fewer than 8 bytes are left
            end = len(view) + 8
        except UnicodeDecodeError:
            raise _DamagedError(f"is damaged: the metadata {key!r} is not UTF-8") from None
        self.place = place
        if len(strings) < count:
            self._take(end - place, f"the metadata {key!r}")
        return strings

    def _take(self, length: int, what: str) -> int:
        """The place of the next `length` bytes, which are inside the file."""
        start = self.place
        if length > self._size - start:
            raise _DamagedError(f"is truncated: {what} should have {length} bytes at {start}")
        self.place = start + length
        if self.place > len(self._view):
            raise _WindowTooSmallError
        return start
