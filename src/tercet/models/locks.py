"""Locks between processes that leave nothing behind.

What is being made is itself the lock: a partial file or folder, which its maker locks, fills, and
renames. What wasn't renamed is removed at the end, unless the process dies: then the kernel drops
the lock, and the next maker begins with what was left.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LOOK_S = 0.01


@contextmanager
def locked_file(path: Path) -> Iterator[BinaryIO]:
    """The file at this path, made if absent, locked by nobody else until the end of the block."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "r+b") as file:
            if _locked_at(descriptor, path):
                try:
                    yield file
                finally:
                    if is_at(descriptor, path):
                        path.unlink()
                return


def _locked_at(descriptor: int, path: Path) -> bool:
    """Wait for the lock on the file that lies at the path; False once it lies there no more. Its
    maker may rename it and share the lock with readers for ever: who waits for that waits in vain.
    """
    while is_at(descriptor, path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return is_at(descriptor, path)
    return False


@contextmanager
def locked_folder(path: Path) -> Iterator[Path]:
    """The folder at this path, made if absent, locked by nobody else until the end of the block.

    It is removed then, with what is in it.
    """
    from shutil import rmtree

    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed by its maker just now
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_at(descriptor, path):
                try:
                    yield path
                finally:
                    rmtree(path)
                return
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """A rename in the folder survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """True unless the one we waited for has renamed or removed what we locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
