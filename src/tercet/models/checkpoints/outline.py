"""What was read of a file's head, remembered: a file that is as it was then is not read again.

An outline is kept under the file's path with its size, times, inode and device, as digests are
(`models.digests`); a file that has just been changed is not remembered.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from tercet.models.digests import SETTLE_NS, FileState, file_state

T = TypeVar("T")


class _Kept(Struct, frozen=True):
    version: int
    path: str
    state: FileState
    outline: msgspec.Raw


class OutlineCache:
    """One small file for each checkpoint, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, path: Path, version: int, kind: type[T]) -> T | None:
        """The outline of the file as it is now; None if there is none of this version."""
        try:
            kept = msgspec.msgpack.decode(self._file(path).read_bytes(), type=_Kept)
            same = (kept.version, kept.path) == (version, str(path.absolute()))
            if not same or kept.state != file_state(path):
                return None
            return msgspec.msgpack.decode(kept.outline, type=kind)
        except (OSError, msgspec.MsgspecError):
            return None

    def remember(self, path: Path, state: FileState, version: int, outline: object) -> None:
        """Keep what was read of the file when it was in this state; a cache that cannot be written
        is no error here.
        """
        if time.time_ns() - max(state.mtime_ns, state.ctime_ns) <= SETTLE_NS:
            return
        raw = msgspec.Raw(msgspec.msgpack.encode(outline))
        kept = _Kept(version, str(path.absolute()), state, raw)
        file = self._file(path)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.msgpack.encode(kept))
            partial.replace(file)
        except OSError:
            with suppress(OSError):
                partial.unlink()

    def _file(self, path: Path) -> Path:
        name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:32]
        return self._folder / f"{name}.outline"
