"""Building a model image: once for all processes, whole or not at all.

A builder writes `<key>.partial` under an exclusive lock on that very file, and renames it when it
is whole and on the disk. Who waited for the lock finds the image, or, if the builder failed or
died, begins again: nothing is left to clean up.

    absent --open--> partial, locked --write, fsync, rename--> image
                        ^      | builder dies: the lock goes, the file stays
                        +------+
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import Invalid, must
from tercet.models.checkpoints.contract import Checkpoint, bad_checkpoint
from tercet.models.digests import Progress
from tercet.models.image.finite import FiniteSource
from tercet.models.image.layout import (
    SEAL_BYTES,
    About,
    ImageHeader,
    Stored,
    aligned,
    encode_header,
)
from tercet.models.image.mapped import MappedImage
from tercet.models.image.shelf import PARTIAL, Shelf
from tercet.models.locks import locked_file, sync_folder
from tercet.program.packing import Packer
from tercet.program.recipes import Recipe, format_of, sources

_NOT_WEIGHTS = re.compile(
    r".*rotary_emb\.inv_freq|.*attn_rot_embd\.weight|rope_f(req|actor)s\w*\.weight|lm_head\.weight"
)
"""Tensors that may go unread: what the shape says already, and the head where it is tied."""
HUGE_PAGE = 2 << 20
"""Bytes; where huge pages have another size, nothing but speed is lost."""
_TRIES = 3
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedImage:
    """An image to be."""

    key: str
    """Says everything that decides its bytes."""
    recipes: Mapping[str, Recipe]
    packer: Packer
    source: str
    """What the model is called, for people."""
    quantization: str
    about: About


def ensure_image(
    checkpoint: Checkpoint, wanted: WantedImage, shelf: Shelf, progress: Progress | None = None
) -> MappedImage:
    """The image, whole and mapped. It is built if it isn't there, is foreign or damaged;
    `progress` then gets (done, total bytes).
    """
    image = shelf.hold(wanted.key)
    if image is not None:
        return image
    check_sources(checkpoint, wanted.recipes)
    header = plan_image(wanted)
    try:
        for _ in range(_TRIES):  # it may be removed before we hold it
            image = _build(checkpoint, wanted, header, shelf=shelf, progress=progress)
            if image is not None:
                return image
    except OSError as error:
        hint = " `tercet images rm` makes room." if error.errno in _FULL else ""
        raise Invalid(
            f"The model image of {header.size >> 20} MiB cannot be written to {shelf.folder}: "
            f"{error.strerror}.{hint}",
            code="no_model_image",
            parameter=str(shelf.folder),
        ) from None
    raise Invalid(
        f"The model image {shelf.path(wanted.key)} is gone or damaged as soon as it is built.",
        code="no_model_image",
        parameter=str(shelf.folder),
    )


def check_sources(checkpoint: Checkpoint, recipes: Mapping[str, Recipe]) -> None:
    """Every tensor that the recipes read is there in the expected shape, and none is there that
    they should have read (a bias, a norm: leaving it out would give other text); `Invalid` if not.
    """
    read: set[str] = set()
    for recipe in recipes.values():
        for source in sources(recipe):
            read.add(source.name)
            info = checkpoint.describe(source.name)
            if info.shape != source.shape:
                raise bad_checkpoint(
                    info.file,
                    f"holds tensor {source.name!r} with shape {list(info.shape)}, "
                    f"the model needs {list(source.shape)}",
                )
    for name in checkpoint.tensor_names():
        if name not in read and _NOT_WEIGHTS.fullmatch(name) is None:
            raise bad_checkpoint(
                checkpoint.describe(name).file,
                f"holds tensor {name!r}, which no model of family "
                f"{checkpoint.facts().shape.family} as its configuration describes it has",
            )


def plan_image(wanted: WantedImage) -> ImageHeader:
    """Where each weight will lie; equal recipes get one place."""
    distinct = dict.fromkeys(wanted.recipes.values())
    sizes = {recipe: wanted.packer.packed_bytes(recipe) for recipe in distinct}

    def lay(start: int) -> ImageHeader:
        places: dict[Recipe, int] = {}
        end = start
        stored = []
        for name, recipe in wanted.recipes.items():
            if recipe not in places:
                places[recipe] = aligned(end)
                end = places[recipe] + sizes[recipe]
            one = Stored(
                name=name,
                shape=tuple(recipe.shape),
                format=format_of(recipe),
                offset=places[recipe],
                size=sizes[recipe],
            )
            stored.append(one)
        return ImageHeader(
            key=wanted.key,
            source=wanted.source,
            quantization=wanted.quantization,
            packer=wanted.packer.name,
            about=wanted.about,
            weights=tuple(stored),
            size=end + SEAL_BYTES,
        )

    # Offsets are in the header whose length they depend on: lay from a start surely behind it.
    start = aligned(len(encode_header(lay(0))) + 10 * (len(wanted.recipes) + 1))
    return lay(start)


def _build(
    checkpoint: Checkpoint,
    wanted: WantedImage,
    header: ImageHeader,
    *,
    shelf: Shelf,
    progress: Progress | None,
) -> MappedImage | None:
    """The image, by us or by who was at it when we came; None if it was removed at once."""
    path = shelf.path(wanted.key)
    shelf.folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(PARTIAL)
    with locked_file(partial) as file:
        image = shelf.hold(wanted.key)
        if image is not None:  # another process built it while we waited
            return image
        shelf.make_room(wanted.key, header.size)
        _write(file, header, _contents(checkpoint, wanted, header), progress)
        partial.replace(path)
        sync_folder(path.parent)
        return shelf.keep(file, header)


def _contents(
    checkpoint: Checkpoint, wanted: WantedImage, header: ImageHeader
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(offset, bytes) of each distinct recipe, in the order of the offsets."""
    source = FiniteSource(checkpoint)
    written = 0
    for stored in header.weights:
        if stored.offset > written:
            written = stored.offset
            packed = wanted.packer.pack(wanted.recipes[stored.name], source)
            must(
                packed.dtype == np.uint8 and packed.shape == (stored.size,),
                f"{wanted.packer.name} packs {stored.name} into {packed.dtype}{packed.shape}, "
                f"said {stored.size} bytes",
            )
            yield stored.offset, packed


def _write(
    file: BinaryIO,
    header: ImageHeader,
    contents: Iterator[tuple[int, NDArray[np.uint8]]],
    progress: Progress | None,
) -> None:
    """The whole image is in the file and on the disk."""
    digest = hashlib.sha256()
    done = 0

    def put(piece: bytes | memoryview) -> None:
        nonlocal done
        out.write(piece)
        digest.update(piece)
        done += len(piece)

    os.ftruncate(file.fileno(), 0)
    _allocate(file, header.size)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    # Whole huge pages at a time: the page cache then holds the file in huge pages.
    with open(file.fileno(), "wb", buffering=HUGE_PAGE, closefd=False) as out:
        put(encode_header(header))
        for offset, array in contents:
            put(bytes(offset - done))
            put(np.ascontiguousarray(array).data)
            if progress is not None:
                progress(done, header.size)
        out.write(digest.digest())
    os.fsync(file.fileno())
    if progress is not None:
        progress(header.size, header.size)


def _allocate(file: BinaryIO, size: int) -> None:
    """The disk has room for the file; `OSError` now rather than after minutes."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
            raise
