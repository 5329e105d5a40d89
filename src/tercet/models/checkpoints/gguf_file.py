"""A model in GGUF: one file, or the parts of a split one, read under canonical names.

Tensors keep llama.cpp's names in the file; `families.gguf_names` says which canonical tensor each
one is and undoes the interleaving of q and k. Every element type that the `gguf` package
dequantizes is read; the package is imported at the first tensor, for it takes a while.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tercet.base.errors import Invalid
from tercet.base.model import ModelShape
from tercet.models.checkpoints.contract import (
    F32,
    CheckpointFacts,
    TensorInfo,
    bad_checkpoint,
    missing_tensor,
    stored_otherwise,
    with_path,
)
from tercet.models.checkpoints.files import read_piece, size_of
from tercet.models.checkpoints.gguf_header import GgufHeader, GgufTensor, Metadata, read_header
from tercet.models.checkpoints.outline import OutlineCache
from tercet.models.digests import FileState, file_state
from tercet.models.families.gguf_names import (
    ROPE_FACTORS,
    gguf_tensor,
    permuted_heads,
    unpermute,
)
from tercet.models.families.gguf_shape import shape_from_gguf

PARTS_MAX = 1000
ROPE_BYTES_MAX = 1 << 16
OUTLINE_VERSION = 1
"""Grows when `_Outline` means something else, or what makes it finds more faults."""
_Element = TypeVar("_Element", np.float32, np.uint8)
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class _Placed(Struct, frozen=True):
    """A tensor and where its bytes lie."""

    path: str
    tensor: GgufTensor
    type_name: str
    start: int
    size: int


class _Outline(Struct, frozen=True):
    """What the heads of a model's files say."""

    parts: tuple[tuple[str, FileState], ...]
    """All files, the first one too."""
    placed: dict[str, _Placed]
    short: dict[str, object]
    """Metadata, without what is long."""
    long: dict[str, tuple[int, int]]
    """Where that lies in the first file."""


class GgufCheckpoint:
    """A GGUF model whose table of tensors agrees with its files."""

    def __init__(self, facts: CheckpointFacts, placed: dict[str, _Placed]) -> None:
        self._facts = facts
        self._placed = placed

    def facts(self) -> CheckpointFacts:
        """What is known without reading a tensor."""
        return self._facts

    def tensor_names(self) -> Sequence[str]:
        """Canonical names, or the file's own for tensors that no program of ours reads."""
        return list(self._placed)

    def describe(self, name: str) -> TensorInfo:
        """Shape, type and file of one tensor."""
        placed = self._find(name)
        return TensorInfo(
            name=name,
            shape=tuple(reversed(placed.tensor.dims)),
            dtype=placed.type_name,
            file=placed.path,
        )

    def read(self, name: str) -> F32:
        """The tensor dequantized, q and k in halves."""
        placed = self._find(name)
        return self._in_halves(placed, _read(placed))

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """The file's own bytes, rows of q and k in halves."""
        placed = self._find(name)
        if not _in_blocks(placed):
            raise stored_otherwise(self.describe(name), "in blocks")
        return self._in_halves(placed, _stored_rows(placed))

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        """No tensor is stored so."""
        raise stored_otherwise(self.describe(name), "in 8-bit integers")

    def _in_halves(self, placed: _Placed, rows: NDArray[_Element]) -> NDArray[_Element]:
        """The rows of a tensor in the order of Hugging Face's layout."""
        shape = self._facts.shape
        heads = permuted_heads(
            placed.tensor.name,
            architecture=shape.family,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
        )
        if heads is None:
            return rows
        if rows.shape[0] % (2 * heads):
            raise bad_checkpoint(
                placed.path,
                f"holds tensor {placed.tensor.name!r} with {rows.shape[0]} rows for {heads} heads",
            )
        return unpermute(rows, heads)

    def _find(self, name: str) -> _Placed:
        placed = self._placed.get(name)
        if placed is None:
            raise missing_tensor(self._facts.path, name)
        return placed


def _in_blocks(placed: _Placed) -> bool:
    """Whether numbers of a row are stored several together."""
    import gguf

    block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(placed.tensor.type_number)]
    return int(block) > 1


def _stored_rows(placed: _Placed) -> NDArray[np.uint8]:
    """[rows, bytes of a row] as the file has them."""
    piece = read_piece(
        Path(placed.path), placed.start, placed.size, f"tensor {placed.tensor.name!r}"
    )
    return np.frombuffer(piece, np.uint8).reshape(math.prod(placed.tensor.dims[1:]), -1)


def _read(placed: _Placed) -> F32:
    import gguf

    kind = gguf.GGMLQuantizationType(placed.tensor.type_number)
    try:
        array = gguf.dequantize(_stored_rows(placed), kind)
    except NotImplementedError:
        raise bad_checkpoint(
            placed.path,
            f"holds tensor {placed.tensor.name!r} as {kind.name}, which isn't read",
        ) from None
    return np.asarray(array, np.float32).reshape(tuple(reversed(placed.tensor.dims)))


def open_gguf(path: Path, outlines: OutlineCache | None = None) -> GgufCheckpoint:
    """The checkpoint with its header checked, all parts of a split file found.

    With `outlines` a file that is as it was when it was last opened is not read.
    """
    outline = None if outlines is None else outlines.recall(path, OUTLINE_VERSION, _Outline)
    if outline is not None and not _is_present(outline):
        outline = None
    if outline is None:
        outline = _read_outline(path)
        if outlines is not None:
            outlines.remember(path, outline.parts[0][1], OUTLINE_VERSION, outline)
    metadata = Metadata(path, outline.short, outline.long)
    facts = CheckpointFacts(
        kind="gguf",
        path=str(path),
        shape=_shape(path, metadata, outline.placed),
        tokenizer=metadata,
        files=tuple(part for part, _ in outline.parts),
        identity="gguf",
    )
    return GgufCheckpoint(facts, outline.placed)


def _read_outline(path: Path) -> _Outline:
    """What the files say, every header checked."""
    size_of(path)
    states = {path: file_state(path)}
    header = read_header(path)
    placed: dict[str, _Placed] = {}
    for part in _parts(path, header):
        if part != path:
            states[part] = file_state(part)
        part_header = header if part == path else read_header(part)
        for item in _place(part, part_header):
            placed[gguf_tensor(item.tensor.name) or item.tensor.name] = item
    return _Outline(
        parts=tuple((str(part), state) for part, state in states.items()),
        placed=placed,
        short={key: value for key, value in header.metadata.items() if key not in header.long},
        long=header.long,
    )


def _is_present(outline: _Outline) -> bool:
    """Whether every part is there as it was."""
    try:
        return all(file_state(Path(part)) == state for part, state in outline.parts)
    except OSError:
        return False


def _shape(path: Path, metadata: Mapping[str, object], placed: dict[str, _Placed]) -> ModelShape:
    """What the metadata and the tensors' shapes say of the model."""
    shapes = {item.tensor.name: tuple(reversed(item.tensor.dims)) for item in placed.values()}
    factors = placed.get(ROPE_FACTORS)
    if factors is not None and factors.size > ROPE_BYTES_MAX:
        raise bad_checkpoint(str(path), f"is damaged: {ROPE_FACTORS} has {factors.size} bytes")
    try:
        shape = shape_from_gguf(
            metadata,
            shapes,
            rope_factors=None if factors is None else _read(factors).reshape(-1).tolist(),
        )
    except Invalid as error:
        raise with_path(str(path), error) from None
    if shape.num_layers > len(placed):
        raise bad_checkpoint(
            str(path),
            f"holds {len(placed)} tensors, its metadata speaks of {shape.num_layers} layers",
        )
    return shape


def _parts(path: Path, header: GgufHeader) -> list[Path]:
    """All files of the model: one, or as many as `split.count` says, which must be there."""
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= PARTS_MAX:
        raise bad_checkpoint(str(path), f"is damaged: split.count is {count!r}")
    if count <= 1:
        return [path]
    match = _PART.fullmatch(path.name)
    if match is None or int(match.group(3)) != count or int(match.group(2)) != 1:
        raise bad_checkpoint(
            str(path),
            f"is a part of {count}; name the first, whose name ends in -00001-of-{count:05}.gguf",
        )
    parts = [
        path.with_name(f"{match.group(1)}-{number:05}-of-{count:05}.gguf")
        for number in range(1, count + 1)
    ]
    for part in parts:
        if not part.exists():
            raise bad_checkpoint(str(path), f"is one of {count} parts, of which {part} is missing")
    return parts


def _place(path: Path, header: GgufHeader) -> list[_Placed]:
    """The tensors of one file, each inside it, aligned, none overlapping another."""
    import gguf

    placed = []
    for tensor in header.tensors:
        try:
            kind = gguf.GGMLQuantizationType(tensor.type_number)
        except ValueError:
            raise bad_checkpoint(
                str(path), f"holds tensor {tensor.name!r} of the unknown type {tensor.type_number}"
            ) from None
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if 0 in tensor.dims or tensor.dims[0] % block:
            raise bad_checkpoint(
                str(path),
                f"gives tensor {tensor.name!r} of type {kind.name} the dimensions {tensor.dims}",
            )
        size = math.prod(tensor.dims) // block * block_bytes
        start = header.data_start + tensor.offset
        if start + size > header.file_size:
            raise bad_checkpoint(
                str(path),
                f"is truncated: tensor {tensor.name!r} ends at byte {start + size}, "
                f"the file at {header.file_size}",
            )
        if tensor.offset % header.alignment:
            raise bad_checkpoint(
                str(path),
                f"is damaged: tensor {tensor.name!r} begins at {tensor.offset}, unaligned",
            )
        placed.append(_Placed(str(path), tensor, kind.name, start, size))
    end = header.data_start
    for item in sorted(placed, key=lambda item: item.start):
        if item.start < end:
            raise bad_checkpoint(
                str(path), f"is damaged: tensor {item.tensor.name!r} overlaps another"
            )
        end = item.start + item.size
    return placed
