"""The folder of model images: holding one, listing them, removing what was not used for longest.

    KEY.image    a model image, content-addressed; whoever maps it holds a shared lock on it
    KEY.partial  one that is being built, locked by its builder (or left by a dead one)
    KEY.used     empty; its time is the image's last use

Only who gets an image's exclusive lock may remove it, so none goes that a process has mapped.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from tercet.models.config import ModelCacheConfig
from tercet.models.digests import DigestCache, file_state, state_of
from tercet.models.image.layout import (
    LAYOUT_VERSION,
    ImageHeader,
    is_sealed,
    read_header,
    read_layout,
)
from tercet.models.image.mapped import MappedImage
from tercet.models.locks import is_at

IMAGE, PARTIAL, USED = ".image", ".partial", ".used"
WEIGHTS = ".weights"
"""Under such a name, which is no file's, the digest of an image's weights is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An image on the shelf."""

    key: str
    size: int
    header: ImageHeader | None
    """None: damaged at its head, or of another layout; nobody can use it."""
    layout: int | None
    """The version that it says it has."""
    last_use: float
    """Seconds since the epoch."""
    in_use: bool
    """Some process has it mapped."""


class Removal(StrEnum):
    REMOVED = "removed"
    IN_USE = "in use"
    ABSENT = "absent"


class Verdict(StrEnum):
    WHOLE = "whole"
    DAMAGED = "damaged"
    OTHER_LAYOUT = "of another layout"
    """Whole, from another version of this software."""
    ABSENT = "absent"


class Shelf:
    """All images of a model cache."""

    def __init__(self, cache: ModelCacheConfig) -> None:
        self.folder = cache.images
        self._bytes_max = cache.images_bytes_max
        self._digests = DigestCache(cache.digests)

    def path(self, key: str) -> Path:
        """Where the image of this key lies or will lie."""
        return self.folder / f"{key}{IMAGE}"

    def hold(self, key: str) -> MappedImage | None:
        """The image of this key, mapped; None if there is none, or something else in its place.

        Its data are summed once for each state of the file, not at every start.
        """
        path = self.path(key)
        try:
            with _shared(path) as file:
                header = read_header(file)
                if header is None or header.key != key or not self._is_whole(path, file, header):
                    return None
                image = MappedImage(path, header, file)
        except OSError:
            return None
        self._mark(key)
        return image

    def keep(self, file: BinaryIO, header: ImageHeader) -> MappedImage | None:
        """The image that was just written to this file, locked by us, and put in its place: mapped
        as `hold` does, without being summed again. None if it was removed meanwhile.
        """
        path = self.path(header.key)
        fcntl.flock(file, fcntl.LOCK_SH)
        if not is_at(file.fileno(), path):
            return None
        self._digests.remember(path, state_of(os.fstat(file.fileno())), header.key)
        self._mark(header.key)
        return MappedImage(path, header, file)

    def weights(self, key: str) -> str | None:
        """A digest of what the image of this key holds, whoever built it and from where, in hex;
        None where `hold` gives none. Read once for each state of the file.
        """
        path = self.path(key)
        try:
            state = file_state(path)
        except OSError:
            return None
        known = self._digests.recall(path.with_suffix(WEIGHTS), state)
        image = self.hold(key) if known is None else None
        if image is not None:
            known = image.digest()
            self._digests.remember(path.with_suffix(WEIGHTS), state, known)
        return known

    def verify(self, key: str) -> Verdict:
        """Sum the image anew, whatever was remembered of it."""
        path = self.path(key)
        try:
            with _shared(path) as file:
                self._digests.forget(path)
                header = read_header(file)
                if header is not None and header.key == key:
                    whole = self._is_whole(path, file, header)
                    return Verdict.WHOLE if whole else Verdict.DAMAGED
                if read_layout(file) not in {None, LAYOUT_VERSION}:
                    size = os.fstat(file.fileno()).st_size
                    return Verdict.OTHER_LAYOUT if is_sealed(file, size) else Verdict.DAMAGED
                return Verdict.DAMAGED
        except FileNotFoundError:
            return Verdict.ABSENT
        except OSError:
            return Verdict.DAMAGED

    def entries(self) -> list[Entry]:
        """Every image, the least recently used first, what cannot be used before all."""
        found = []
        for path in self._paths(IMAGE):
            with suppress(OSError):  # removed meanwhile
                found.append(_entry(path))
        return sorted(found, key=lambda one: (one.header is not None, one.last_use, one.key))

    def remove(self, key: str) -> Removal:
        """Remove the image of this key unless a process has it mapped."""
        path = self.path(key)
        try:
            with path.open("rb") as file:
                if not _lock_alone(file):
                    return Removal.IN_USE
                if not is_at(file.fileno(), path):
                    return Removal.ABSENT
                path.unlink()
        except FileNotFoundError:
            return Removal.ABSENT
        path.with_suffix(USED).unlink(missing_ok=True)
        for name in (path, path.with_suffix(WEIGHTS)):
            self._digests.forget(name)
        return Removal.REMOVED

    def make_room(self, key: str, size: int) -> list[Entry]:
        """Remove images that are not in use, the least recently used first, until one of `size`
        bytes fits under the limit as `key`; what was removed. The new image is never refused: if
        it is larger than the limit, all others go.
        """
        self.sweep()
        others = [entry for entry in self.entries() if entry.key != key]
        room = self._bytes_max - size - sum(entry.size for entry in others)
        removed = []
        for entry in others:
            if room >= 0:
                break
            if self.remove(entry.key) is Removal.REMOVED:
                removed.append(entry)
                room += entry.size
        return removed

    def sweep(self) -> None:
        """Remove what dead builders and removed images left."""
        for path in self._paths(PARTIAL):
            with suppress(OSError), path.open("rb") as file:
                if _lock_alone(file) and is_at(file.fileno(), path):
                    path.unlink()
        for path in self._paths(USED):
            if not path.with_suffix(IMAGE).exists():
                path.unlink(missing_ok=True)

    def _mark(self, key: str) -> None:
        """It is being used now."""
        with suppress(OSError):  # a cache that cannot be written can still be read
            self.path(key).with_suffix(USED).touch()

    def _paths(self, suffix: str) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix == suffix)
        except OSError:
            return []

    def _is_whole(self, path: Path, file: BinaryIO, header: ImageHeader) -> bool:
        state = state_of(os.fstat(file.fileno()))
        if self._digests.recall(path, state) == header.key:
            return True
        whole = is_sealed(file, header.size)
        if whole and state_of(os.fstat(file.fileno())) == state:
            self._digests.remember(path, state, header.key)
        return whole


def _entry(path: Path) -> Entry:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        in_use = not _lock_alone(file)
        header, layout = read_header(file), read_layout(file)
    try:
        last_use = path.with_suffix(USED).stat().st_mtime
    except OSError:
        last_use = status.st_mtime
    key = path.name.removesuffix(IMAGE)
    return Entry(
        key=key,
        size=status.st_size,
        header=header if header is not None and header.key == key else None,
        layout=layout,
        last_use=last_use,
        in_use=in_use,
    )


@contextmanager
def _shared(path: Path) -> Iterator[BinaryIO]:
    """The file that lies at the path, under a shared lock; waits for who just put it there."""
    while True:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if is_at(file.fileno(), path):
                yield file
                return


def _lock_alone(file: BinaryIO) -> bool:
    """True if nobody else has the file locked; it is ours then until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
