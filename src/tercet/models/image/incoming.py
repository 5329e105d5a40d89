"""An image that comes from another host in blocks, until it is whole and on the shelf.

KEY.HOST.partial, locked by us ── every block written by its copier ── seal ──▶ KEY.image
                                              └── drop, or our death: swept by the next builder
"""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tercet.models.image.layout import is_sealed, read_header
from tercet.models.image.shelf import PARTIAL, Shelf
from tercet.models.locks import sync_folder


class IncomingImage:
    """Mapped for writing while it comes; the bytes stay valid for as long as `bytes` lives."""

    def __init__(
        self, shelf: Shelf, key: str, path: Path, *, file: BinaryIO, data: NDArray[np.uint8]
    ) -> None:
        self.bytes = data
        """[size] uint8, the file itself."""
        self._shelf = shelf
        self._key = key
        self._path = path
        self._file = file

    @classmethod
    def open(cls, shelf: Shelf, key: str, size: int, *, host: str) -> "IncomingImage":
        """Room for it on the shelf, whole images going that nobody uses, the least recently used
        first; `OSError` where the disk has none.
        """
        shelf.folder.mkdir(parents=True, exist_ok=True)
        shelf.make_room(key, size)
        path = shelf.path(key).with_suffix(f".{host}{PARTIAL}")
        file = path.open("w+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(file.fileno(), 0, size)
            data = np.memmap(file, np.uint8, "r+", shape=(size,))
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return cls(shelf, key, path, file=file, data=np.asarray(data))

    def seal(self) -> str:
        """Verify the whole and put it on the shelf; give why not, or nothing. Reads all of it."""
        header = read_header(self._file)
        if header is None or header.key != self._key:
            self.drop()
            return "what came is no model image of this key"
        if not is_sealed(self._file, header.size):
            self.drop()
            return "what came differs from what its seal says"
        try:
            os.fsync(self._file.fileno())
            self._path.replace(self._shelf.path(self._key))
            sync_folder(self._shelf.folder)
        except OSError as error:
            self.drop()
            return f"it cannot be put on the shelf: {error.strerror}"
        self._shelf.keep(self._file, header)
        self._file.close()  # the map keeps the lock
        return ""

    def drop(self) -> None:
        """Leave nothing of it."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def hold_for_lending(shelf: Shelf, key: str) -> NDArray[np.uint8] | None:
    """[size] uint8 of a whole image, read-only, in use for as long as the array lives; None if
    there is none.
    """
    image = shelf.hold(key)
    return None if image is None else image.whole()
