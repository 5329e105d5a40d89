"""Reading pieces of files that may be shorter than they say.

Tensors are read, not mapped: a file that somebody shortens meanwhile then gives an error and not
a SIGBUS.
"""

import stat
from pathlib import Path

from tercet.models.checkpoints.contract import bad_checkpoint


def size_of(path: Path) -> int:
    """The size of a regular file in bytes; `Invalid` with the reason if it is none."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would wait for ever
            raise bad_checkpoint(str(path), "is no regular file")
        return status.st_size
    except FileNotFoundError:
        raise bad_checkpoint(str(path), "does not exist") from None
    except OSError as error:
        raise bad_checkpoint(str(path), f"cannot be read: {error.strerror}") from None


def read_piece(path: Path, offset: int, size: int, what: str) -> bytearray:
    """Exactly `size` bytes from `offset`; `what` names them in the error when there are fewer."""
    piece = bytearray(size)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            got = file.readinto(piece)
    except OSError as error:
        raise bad_checkpoint(str(path), f"cannot be read: {error.strerror}") from None
    if got != size:
        raise bad_checkpoint(
            str(path), f"is truncated: {what} should have {size} bytes at {offset}, {got} are there"
        )
    return piece
