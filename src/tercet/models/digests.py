"""Digests of big files, computed once for each state of a file.

A digest is remembered under the file's path with its size, times, inode and device. A file
changed less than `SETTLE_NS` before it was read is not remembered: the clock of a file system
ticks coarsely, and a second change could fall into the same tick.
"""

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from tercet.base.errors import Invalid

SETTLE_NS = 2_000_000_000
PIECE_BYTES = 1 << 22
Progress = Callable[[int, int], None]
"""Called with (done bytes, total bytes) as work goes on."""


class FileState(msgspec.Struct, frozen=True):
    """What changes when a file does."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


class _Remembered(msgspec.Struct, frozen=True):
    path: str
    state: FileState
    sha256: str


def file_state(path: Path) -> FileState:
    """The present state of a file; links are followed."""
    return state_of(path.stat())


def state_of(status: os.stat_result) -> FileState:
    """The state of a file whose status is this."""
    return FileState(
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        device=status.st_dev,
    )


def sha256_of(path: Path, progress: Progress | None = None) -> str:
    """The digest of the file's whole content, in hex."""
    digest = hashlib.sha256()
    piece = bytearray(PIECE_BYTES)
    done = 0
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        while got := file.readinto(piece):
            digest.update(memoryview(piece)[:got])
            done += got
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


class DigestCache:
    """Remembers digests in one small file each, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sha256(self, path: Path, progress: Progress | None = None) -> str:
        """The digest of the file's content, from memory if the file is as it was then."""
        try:
            before = file_state(path)
            known = self.recall(path, before)
            if known is not None:
                return known
            digest = sha256_of(path, progress)
            after = file_state(path)
        except OSError as error:
            raise Invalid(
                f"{path} cannot be read: {error.strerror}.", code="invalid_checkpoint"
            ) from None
        if before != after:
            raise Invalid(f"{path} was changed while it was read.", code="invalid_checkpoint")
        if time.time_ns() - max(after.mtime_ns, after.ctime_ns) > SETTLE_NS:
            self.remember(path, after, digest)
        return digest

    def recall(self, path: Path, state: FileState) -> str | None:
        """The digest that was remembered for this state of the file."""
        try:
            known = msgspec.json.decode(self._file(path).read_bytes(), type=_Remembered)
        except (OSError, msgspec.MsgspecError):
            return None
        same = known.path == str(path.absolute()) and known.state == state
        return known.sha256 if same else None

    def remember(self, path: Path, state: FileState, digest: str) -> None:
        """Keep the digest; a cache that cannot be written is no error here."""
        known = _Remembered(str(path.absolute()), state, digest)
        file = self._file(path)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(known))
            partial.replace(file)
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def forget(self, path: Path) -> None:
        """Whatever was remembered of the file, it will be read again."""
        with suppress(OSError):
            self._file(path).unlink()

    def _file(self, path: Path) -> Path:
        name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:32]
        return self._folder / f"{name}.json"
