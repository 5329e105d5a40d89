"""A file that is a memory: extents read and written past the page cache, notes beside them.

Extents begin at multiples of 4096 bytes and their last unit is filled up with zeros. All go through
buffers of huge pages, where the system gives them: who brings bytes sums them anyway, and a virtual
disk takes a few large pieces of memory twice as fast as hundreds of pages. Where the filesystem
refuses O_DIRECT the file is used with the page cache, and `direct` says so.

Notes are small and go through the page cache, in a file of their own (`<path>.notes`): a write
through the page cache waits until no O_DIRECT write of the same file is under way, and none begins
meanwhile, so each note would stop the disk for a moment.
"""

import errno
import mmap
import os
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tercet.base.errors import must
from tercet.messages.events import MoveEnd
from tercet.wires.contract import WireFailure

UNIT_BYTES = 4096
BUFFER_BYTES = 4 << 20
_BUFFERS = 4
_HUGE = 2 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM)
_Call = Callable[[int, list[memoryview], int], int]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that a disk takes from where they lie."""

    view: memoryview
    address: int


class Slab:
    """Used by many threads at once, each for an extent of its own."""

    def __init__(
        self,
        path: Path,
        size: int,
        *,
        head: bytes,
        kind: bytes | None = None,
        notes_size: int = 0,
    ) -> None:
        """The files, of these sizes, each with this head; where one is new, or has another head of
        this `kind` (all heads begin with it; unless it is said there is no other), both are begun
        anew.

        `OSError` where there is no room, no right to write, or a file of something else, which is
        left as it is.
        """
        self.path = path
        self.size = -(-size // UNIT_BYTES) * UNIT_BYTES
        names = (path, Path(f"{path}.notes"))
        for name in names:
            _refuse_others(name, head if kind is None else kind)
        with ExitStack() as undo:
            files = [self._open(name, undo) for name in names]
            _begin(files, (self.size, notes_size), head)
            self._extents, self.direct = self._open_direct()
            undo.pop_all()
        os.close(files[0])
        self._notes = files[1]
        self._buffers: queue.LifoQueue[Buffer] = queue.LifoQueue()
        for _ in range(_BUFFERS):
            self._buffers.put(_new_buffer())

    def close(self) -> None:
        """Nobody may use it any more."""
        os.close(self._notes)
        os.close(self._extents)

    @contextmanager
    def buffer(self) -> Iterator[Buffer]:
        """Memory for one extent, as long as the block lasts."""
        buffer = self._buffers.get()
        try:
            yield buffer
        finally:
            self._buffers.put(buffer)

    def write(self, buffer: Buffer, count: int, at: int) -> None:
        """The buffer's first bytes to disk; FULL where it does not take them."""
        padded = -(-count // UNIT_BYTES) * UNIT_BYTES
        buffer.view[count:padded] = bytes(padded - count)
        self._through(os.pwritev, buffer.view[:padded], at)

    def read(self, buffer: Buffer, count: int, at: int) -> None:
        """Disk to the buffer's first bytes."""
        padded = -(-count // UNIT_BYTES) * UNIT_BYTES
        self._through(os.preadv, buffer.view[:padded], at)

    def note(self, said: bytes, at: int) -> None:
        """Write a few bytes beside the extents."""
        try:
            os.pwrite(self._notes, said, at)
        except OSError as error:
            raise _failure(error) from None

    def notes(self, at: int, size: int, step: int = 1 << 20) -> Iterator[bytes]:
        """What lies there, piece by piece."""
        for begin in range(at, at + size, step):
            try:
                yield os.pread(self._notes, min(step, at + size - begin), begin)
            except OSError as error:
                raise _failure(error) from None

    def _open(self, path: Path, undo: ExitStack) -> int:
        found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, found)
        return found

    def _open_direct(self) -> tuple[int, bool]:
        try:
            return os.open(self.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC), False

    def _through(
        self,
        call: _Call,
        view: memoryview,
        at: int,
    ) -> None:
        must(at % UNIT_BYTES == 0, f"an extent at byte {at}")
        done = 0
        while done < len(view):
            try:
                count = call(self._extents, [view[done:]], at + done)
            except OSError as error:
                raise _failure(error) from None
            if count <= 0:
                raise WireFailure(MoveEnd.GONE, f"{self.path} ends before byte {at + len(view)}")
            done += count


def _refuse_others(name: Path, kind: bytes) -> None:
    """Raise unless a file is new, empty or of this kind: a path may be mistyped."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        found = os.pread(file, len(kind), 0)
    finally:
        os.close(file)
    if found not in (b"", kind):
        why = f"{name} holds something else, and is left as it is"
        raise FileExistsError(errno.EEXIST, why)


def _begin(files: list[int], sizes: tuple[int, int], head: bytes) -> None:
    if any(os.pread(file, len(head), 0) != head for file in files):
        for file in files:
            os.ftruncate(file, 0)
            os.pwrite(file, head, 0)  # first: a file that is left half made is known again
    for file, size in zip(files, sizes, strict=True):
        had = os.fstat(file).st_size
        if had > size:
            os.ftruncate(file, size)
        elif had < size:
            os.posix_fallocate(file, 0, size)


def _new_buffer() -> Buffer:
    page = mmap.mmap(-1, BUFFER_BYTES + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them
        page.madvise(mmap.MADV_HUGEPAGE)
    address = np.frombuffer(page, np.uint8).ctypes.data
    begin = -address % _HUGE
    return Buffer(memoryview(page)[begin : begin + BUFFER_BYTES], address + begin)


def _failure(error: OSError) -> WireFailure:
    end = MoveEnd.FULL if error.errno in _NO_ROOM else MoveEnd.GONE
    return WireFailure(end, str(error))
