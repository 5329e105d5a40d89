"""Building a model image: once for all processes, whole or not at all.

A builder writes `<key>.partial` under an exclusive lock on that very file, and renames it when it
is whole and on the disk. Who waited for the lock finds the image, or, if the builder failed or
died, begins again: nothing is left to clean up.

    absent --open--> partial, locked --write, fsync, rename--> image
                        ^      | builder dies: the lock goes, the file stays
                        +------+
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tercet.base.errors import Invalid
from tercet.models.checkpoints.contract import F32, Checkpoint, bad_checkpoint
from tercet.models.digests import DigestCache, Progress, file_state
from tercet.models.image.layout import (
    SEAL_BYTES,
    ImageHeader,
    Stored,
    aligned,
    encode_header,
    image_is_whole,
)
from tercet.models.locks import locked_file, sync_folder
from tercet.program.recipes import Recipe, evaluate, sources

FINITE_PIECE = 1 << 22
_NOT_WEIGHTS = re.compile(
    r".*rotary_emb\.inv_freq|.*attn_rot_embd\.weight|rope_f(req|actor)s\w*\.weight|lm_head\.weight"
)
"""Tensors that may go unread: what the shape says already, and the head where it is tied."""


def ensure_image(
    checkpoint: Checkpoint,
    recipes: Mapping[str, Recipe],
    path: Path,
    *,
    digests: DigestCache,
    progress: Progress | None = None,
) -> None:
    """The whole image of these weights lies at `path`, whose stem is its key.

    It is built if it isn't there, is foreign or damaged; `progress` then gets (done, total bytes).
    """
    key = path.stem
    if image_is_whole(path, key, digests):
        return
    check_sources(checkpoint, recipes)
    header = plan_image(key, recipes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with locked_file(partial) as file:
            if image_is_whole(path, key, digests):  # another process built it while we waited
                return
            _write(file, header, _contents(checkpoint, recipes, header), progress)
            partial.replace(path)
            sync_folder(path.parent)
            digests.remember(path, file_state(path), key)
    except OSError as error:
        raise Invalid(
            f"The model image of {header.size >> 20} MiB cannot be written to {path.parent}: "
            f"{error.strerror}.",
            code="no_model_image",
            parameter=str(path.parent),
        ) from None


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


def plan_image(key: str, recipes: Mapping[str, Recipe]) -> ImageHeader:
    """Where each weight will lie; equal recipes get one place."""

    def lay(start: int) -> ImageHeader:
        places: dict[Recipe, int] = {}
        end = start
        stored = []
        for name, recipe in recipes.items():
            if recipe not in places:
                places[recipe] = aligned(end)
                end = places[recipe] + 4 * int(np.prod(recipe.shape, dtype=np.int64))
            stored.append(Stored(name, tuple(recipe.shape), places[recipe]))
        return ImageHeader(key=key, weights=tuple(stored), size=end + SEAL_BYTES)

    # Offsets are in the header whose length they depend on: lay from a start surely behind it.
    start = aligned(len(encode_header(lay(0))) + 10 * (len(recipes) + 1))
    return lay(start)


def _contents(
    checkpoint: Checkpoint, recipes: Mapping[str, Recipe], header: ImageHeader
) -> Iterator[tuple[int, F32]]:
    """(offset, weight) of each distinct recipe, in the order of the offsets."""

    def read(name: str) -> F32:
        array = checkpoint.read(name)
        _check_finite(checkpoint, name, array)
        return array

    written = 0
    for stored in header.weights:
        if stored.offset > written:
            written = stored.offset
            yield stored.offset, evaluate(recipes[stored.name], read)


def _check_finite(checkpoint: Checkpoint, name: str, array: F32) -> None:
    flat = array.reshape(-1)
    for start in range(0, flat.size, FINITE_PIECE):
        finite = np.isfinite(flat[start : start + FINITE_PIECE])
        if not finite.all():
            place = start + int(np.argmin(finite))
            index = [int(axis) for axis in np.unravel_index(place, array.shape)]
            raise bad_checkpoint(
                checkpoint.describe(name).file,
                f"holds tensor {name!r} with the value {flat[place]} at {index}",
            )


def _write(
    file: BinaryIO,
    header: ImageHeader,
    contents: Iterator[tuple[int, F32]],
    progress: Progress | None,
) -> None:
    """The whole image is in the file and on the disk."""
    digest = hashlib.sha256()
    done = 0

    def put(piece: bytes | memoryview) -> None:
        nonlocal done
        file.write(piece)
        digest.update(piece)
        done += len(piece)

    os.ftruncate(file.fileno(), 0)
    file.seek(0)
    put(encode_header(header))
    for offset, array in contents:
        put(bytes(offset - done))
        put(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if progress is not None:
            progress(done, header.size)
    file.write(digest.digest())
    file.flush()
    os.fsync(file.fileno())
    if progress is not None:
        progress(header.size, header.size)
