"""KV memory: arenas (shared memory, one for each executor) at fixed places of one address range.

    one reserved range (PROT_NONE: an address that nothing is mapped at faults, it never lies)
    ├──────────── arena 0 ───────────┼──────────── arena 1 ───────────┼── arena 2 (not mapped) ──┤
    │ directory │ block 0 ... N-1 │..│ directory │ block 0 ... N-1 │..│                          │
    └───────────┴─────────────────┴──┴───────────┴─────────────────┴──┴──────────────────────────┘
                ^ `blocks` begins here       ..: padding up to a multiple of page and block

    directory (little-endian)
    0       8             16           24      32     64            64 + 4 N  64 + 8 N    64 + 16 N
    ├ magic ┼ block bytes ┼ num blocks ┼ clock ┼ zero ┼ generation[N] ┼ fill[N] ┼ checksum[N] ┤
      u8      u8            u8           u8             u4              u4        u8

A block id is arena x blocks_per_arena + index, and its address is start + id x block bytes: an
arena takes a whole number of blocks, so ids are equally far apart even across arenas (the ids
between N and blocks_per_arena name padding and the next directory, and are never handed out).
A directory says of each block: which life it is in (a reader of a former life can tell), how many
tokens it holds, the checksum of a copy. Generations are written by whoever owns the arena, before
it writes to a block that was handed out afresh: the numbers are the machine's (`StepPlan.begins`,
`lives` of a `Move`'s target), nothing is counted here (cache/blocks.py says why). The clock says
how far the owner's device is: (step << 16) | layers of it that are done.
"""

import ctypes
import errno
import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tercet.base.errors import must
from tercet.devices.contract import I64, U64

_MAGIC = 0x414E454152544354  # TCTRAENA
LIVES_AT = 64
"""Bytes before the generations in a directory: the header."""
CLOCK_AT = 24
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value
U32 = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaLayout:
    """Sizes of an arena; equal on all hosts for equal blocks."""

    block_bytes: int
    num_blocks: int
    directory_bytes: int
    blocks_per_arena: int
    """Step of block ids from one arena to the next; at least `num_blocks`."""

    @property
    def size_bytes(self) -> int:
        """Size of the shared memory, a multiple of page and block."""
        return self.blocks_per_arena * self.block_bytes


def arena_layout(bytes_per_block: int, num_blocks: int) -> ArenaLayout:
    """The smallest layout with room for so many blocks."""
    must(bytes_per_block > 0 and num_blocks > 0, f"{num_blocks} blocks of {bytes_per_block} bytes")
    directory = _ceil(LIVES_AT + num_blocks * (4 + 4 + 8), _PAGE)
    unit = math.lcm(_PAGE, bytes_per_block)
    size = _ceil(directory + num_blocks * bytes_per_block, unit)
    return ArenaLayout(
        block_bytes=bytes_per_block,
        num_blocks=num_blocks,
        directory_bytes=directory,
        blocks_per_arena=size // bytes_per_block,
    )


def block_bytes(block_shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> int:
    """Size of a block of such values."""
    return np.dtype(dtype).itemsize * math.prod(block_shape)


def make_arena(name: str, layout: ArenaLayout, *, populate: bool = True) -> int:
    """The descriptor of a new arena, zeroed and marked with its layout; it shows up as `name` in
    /proc. Its memory is really there (no later surprise) unless the caller leaves that to
    `populate_arena`; `OSError` where the machine has not so much to give now. The caller keeps to
    its budget: a kernel that runs out of memory while it populates an arena does not refuse, it
    kills.
    """
    if layout.size_bytes > _available_bytes():
        raise OSError(errno.ENOMEM, f"an arena of {layout.size_bytes} bytes: not enough memory")
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, layout.size_bytes)
        if populate:
            populate_arena(descriptor)
        header = np.array([_MAGIC, layout.block_bytes, layout.num_blocks], "<u8")
        os.pwrite(descriptor, header.tobytes(), 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def populate_arena(descriptor: int) -> None:
    """The arena's memory is really there; `OSError` where it is not to be had. Takes seconds for
    gigabytes, and may run while the arena is in use.
    """
    os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)


def life_bytes(layout: ArenaLayout) -> tuple[int, int]:
    """(first byte, length) of the generations in an arena."""
    return LIVES_AT, 4 * layout.num_blocks


class AddressRange:
    """A reserved range with its mapped arenas; implements `devices.contract.KvMemory`.

    Arrays and views of it are valid until `close`.
    """

    def __init__(
        self,
        layout: ArenaLayout,
        *,
        block_shape: tuple[int, ...],
        dtype: DTypeLike,
        start: int,
        num_arenas: int,
    ) -> None:
        self.layout = layout
        self.block_shape = block_shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.num_arenas = num_arenas
        self._start = start
        self._writable: dict[int, bool] = {}
        self._blocks: NDArray[Any] | None = None
        self._lives: U32 | None = None

    @classmethod
    def reserve(
        cls,
        layout: ArenaLayout,
        *,
        block_shape: tuple[int, ...],
        dtype: DTypeLike = np.float32,
        num_arenas: int = 1,
    ) -> "AddressRange":
        """Addresses for so many arenas of such blocks, with no memory behind them yet."""
        size = block_bytes(block_shape, dtype)
        must(size == layout.block_bytes, f"blocks {np.dtype(dtype)}{block_shape} in {layout}")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        start = _map(0, layout.size_bytes * num_arenas, protection=_PROT_NONE, flags=flags)
        return cls(layout, block_shape=block_shape, dtype=dtype, start=start, num_arenas=num_arenas)

    @property
    def num_ids(self) -> int:
        """Block ids are below this."""
        return self.layout.blocks_per_arena * (self.num_arenas - 1) + self.layout.num_blocks

    @property
    def own_blocks(self) -> range:
        """Ids of the blocks of the writable arena; a process has one of its own."""
        own = [arena for arena, writable in self._writable.items() if writable]
        must(len(own) == 1, f"{len(own)} writable arenas, expected one")
        first = own[0] * self.layout.blocks_per_arena
        return range(first, first + self.layout.num_blocks)

    def map_arena(self, arena: int, descriptor: int, *, writable: bool) -> None:
        """The arena's memory stands at its place in the range; the descriptor may be closed.

        A descriptor of another size or layout breaks an invariant: whoever lent it is wrong.
        """
        must(0 <= arena < self.num_arenas, f"arena {arena} of {self.num_arenas}")
        must(arena not in self._writable, f"arena {arena} is mapped twice")
        size = os.fstat(descriptor).st_size
        must(size == self.layout.size_bytes, f"an arena of {size} bytes, not of the layout's size")
        header = np.frombuffer(os.pread(descriptor, 24, 0), "<u8").tolist()
        expected = [_MAGIC, self.layout.block_bytes, self.layout.num_blocks]
        must(header == expected, f"an arena with header {header}, expected {expected}")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        place = self._start + arena * size
        flags = mmap.MAP_SHARED | _MAP_FIXED
        _map(place, size, protection=protection, flags=flags, descriptor=descriptor)
        self._writable[arena] = writable

    def unmap_arena(self, arena: int) -> None:
        """The arena's place is empty again: reading there faults."""
        must(arena in self._writable, f"arena {arena} is not mapped")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
        size = self.layout.size_bytes
        _map(self._start + arena * size, size, protection=_PROT_NONE, flags=flags)
        del self._writable[arena]

    def close(self) -> None:
        """Give the whole range back; no view of it may be used afterwards."""
        must(self._start != 0, "a range is closed twice")
        _unmap(self._start, self.layout.size_bytes * self.num_arenas)
        self._start = 0
        self._writable.clear()

    @property
    def blocks(self) -> NDArray[Any]:
        """[block ids, *block shape] of `dtype`, over all arenas. Only mapped blocks may be touched,
        only those of writable arenas written.
        """
        if self._blocks is None:
            data = self._view(self.layout.directory_bytes, self.num_ids * self.layout.block_bytes)
            self._blocks = data.view(self.dtype).reshape(self.num_ids, *self.block_shape)
        return self._blocks

    def generations(self, arena: int) -> U32:
        """[N] the life that each block of a mapped arena is in."""
        return self._entries(arena, 0, 4).view("<u4")

    @property
    def lives(self) -> U32:
        """The whole range as if it held nothing but generations: only entries at `life_places` of
        mapped arenas may be touched.
        """
        if self._lives is None:
            self._lives = self._view(0, self.layout.size_bytes * self.num_arenas).view("<u4")
        return self._lives

    def life_places(self, block_ids: I64) -> I64:
        """Index in `lives` of each block's generation."""
        arenas, indices = np.divmod(block_ids, self.layout.blocks_per_arena)
        places: I64 = arenas * (self.layout.size_bytes // 4) + (LIVES_AT // 4) + indices
        return places

    def address(self, arena: int) -> int:
        """Where a mapped arena begins."""
        must(arena in self._writable, f"arena {arena} is not mapped")
        return self._start + arena * self.layout.size_bytes

    def clock(self, arena: int = 0) -> U64:
        """[1] how far the device of a mapped arena's owner is: (step << 16) | layers done."""
        must(arena in self._writable, f"arena {arena} is not mapped")
        return self._view(arena * self.layout.size_bytes + CLOCK_AT, 8).view("<u8")

    def fills(self, arena: int) -> U32:
        """[N] tokens that each block holds."""
        return self._entries(arena, 4, 4).view("<u4")

    def checksums(self, arena: int) -> U64:
        """[N] of each copied block."""
        return self._entries(arena, 8, 8).view("<u8")

    def renew(self, block_ids: I64, lives: U32) -> None:
        """These blocks of writable arenas begin these lives: to be called before the first byte of
        them is written. Doing it again with the same lives changes nothing.
        """
        arenas, indices = np.divmod(block_ids, self.layout.blocks_per_arena)
        for arena in dict.fromkeys(arenas.tolist()):
            must(self._writable.get(arena, False), f"arena {arena} is not mapped for writing")
            mine = arenas == arena
            self.generations(arena)[indices[mine]] = lives[mine]

    def _entries(self, arena: int, after_bytes: int, entry_bytes: int) -> NDArray[np.uint8]:
        must(arena in self._writable, f"arena {arena} is not mapped")
        count = self.layout.num_blocks
        offset = arena * self.layout.size_bytes + LIVES_AT + after_bytes * count
        return self._view(offset, entry_bytes * count)

    def _view(self, offset: int, size: int) -> NDArray[np.uint8]:
        must(self._start != 0, "the range is closed")
        memory = (ctypes.c_uint8 * size).from_address(self._start + offset)
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8)


def private_memory(
    block_shape: tuple[int, ...],
    num_blocks: int,
    *,
    dtype: DTypeLike = np.float32,
    populate: bool = True,
) -> AddressRange:
    """A range with one writable arena of its own: for a process that shares with nobody."""
    layout = arena_layout(block_bytes(block_shape, dtype), num_blocks)
    descriptor = make_arena("tercet-kv-private", layout, populate=populate)
    try:
        memory = AddressRange.reserve(layout, block_shape=block_shape, dtype=dtype)
        memory.map_arena(0, descriptor, writable=True)
    finally:
        os.close(descriptor)
    return memory


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _available_bytes() -> int:
    """What the kernel could give without killing anyone."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map(place: int, size: int, *, protection: int, flags: int, descriptor: int = -1) -> int:
    address = _libc().mmap(place or None, size, protection, flags, descriptor, 0)
    if address is None or address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap of {size} bytes: {os.strerror(code)}")
    return int(address)


def _unmap(place: int, size: int) -> None:
    if _libc().munmap(place, size) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"munmap of {size} bytes: {os.strerror(code)}")
