"""Virtual memories: cells that say what the bytes in their place are, not the bytes.

    memory    | cell | cell | cell | ...        CELL_BYTES each; one part of KV: a (block, layer)
                  `- tag: which KV it is (`tag_of`), or garbage

A tag stands for the content itself: equal content has equal tags, anything else another one. So
folds of tags are equal exactly when sums of the bytes would be, and a checker can ask of every cell
that is read whether it is what its reader takes it for.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.base.rand import mix
from tercet.devices.contract import I64, U64
from tercet.messages.kv import Strip

U32 = NDArray[np.uint32]
CELL_BYTES = 4096
"""Also what places in pools and disks are multiples of."""
ARENA_BLOCKS_AT = CELL_BYTES
"""Bytes before block 0 of an arena: its directory."""


class Memory:
    """Cells of one name; made larger as they are touched, up to its size."""

    def __init__(self, name: str, *, host: str, num_cells: int) -> None:
        self.name = name
        self.host = host
        self.num_cells = num_cells
        self.tags: U64 = np.zeros(min(num_cells, 1024), np.uint64)
        self.labels: dict[int, bytes] = {}
        """A disk's: what lies beside the values, by its place in the list of labels."""
        self._num_garbage = 0

    def read(self, cells: I64) -> U64:
        self._reach(cells)
        return self.tags[cells]

    def write(self, cells: I64, tags: U64) -> None:
        self._reach(cells)
        self.tags[cells] = tags

    def spoil(self, cells: I64) -> None:
        """Put what nobody knows into these cells, another thing each time."""
        self._num_garbage += 1
        self.write(cells, garbage(self.name, self._num_garbage, len(cells)))

    @property
    def used(self) -> int:
        """Cells that were ever touched (or a few more)."""
        return len(self.tags)

    @property
    def pooled(self) -> bool:
        """Whether a pool keeps values in it."""
        return "/kv/" not in self.name

    def flip(self, cell: int, bit: int) -> None:
        """Let a bit of what is there be another."""
        self.tags[cell] ^= np.uint64(1 << bit)

    def _reach(self, cells: I64) -> None:
        top = int(cells.max(initial=-1)) + 1
        must(top <= self.num_cells, f"cell {top - 1} of {self.name}, which has {self.num_cells}")
        must(int(cells.min(initial=0)) >= 0, f"a cell before the first of {self.name}")
        if top > len(self.tags):
            larger = np.zeros(min(self.num_cells, max(top, 2 * len(self.tags))), np.uint64)
            larger[: len(self.tags)] = self.tags
            self.tags = larger


class Layers(Protocol):
    """Who computes blocks of an arena, layer by layer."""

    def catch_up(self) -> None:
        """Write what has been computed by now."""
        ...

    def when(self, step: int, layer: int, then: Callable[[], None]) -> None:
        """Call once this layer (from 1) of this step has been computed: at once, later, or, if
        its process ends before, never.
        """
        ...


class Arena(Memory):
    """An executor's blocks: `layers` cells each, behind a directory with a generation of each."""

    def __init__(self, name: str, *, host: str, lives: U32, layers: int) -> None:
        """`lives`: [blocks] a generation for each, of the host's one array of them."""
        num_blocks = len(lives)
        super().__init__(name, host=host, num_cells=1 + num_blocks * layers)
        self.tags = np.zeros(self.num_cells, np.uint64)
        self.num_blocks = num_blocks
        self.layers = layers
        self.lives = lives

        self.owner: Layers | None = None
        """Whose steps write here; None: it is dead."""

    @property
    def block_bytes(self) -> int:
        return self.layers * CELL_BYTES

    @property
    def blocks(self) -> U64:
        """[blocks, layers] their tags as they are now, to be read and written in place."""
        if self.owner is not None:
            self.owner.catch_up()
        return self.tags[1:].reshape(self.num_blocks, self.layers)

    def read(self, cells: I64) -> U64:
        if self.owner is not None:
            self.owner.catch_up()
        return super().read(cells)

    def renew(self, blocks: I64, lives: U32) -> None:
        """These blocks begin these lives; what they held is nothing any more. Those that are in
        them already stay as they are.
        """
        fresh = self.lives[blocks] != lives
        blocks = blocks[fresh]
        if len(blocks):
            self.lives[blocks] = lives[fresh]
            self._num_garbage += 1
            spoilt = garbage(self.name, self._num_garbage, len(blocks) * self.layers)
            self.blocks[blocks] = spoilt.reshape(len(blocks), self.layers)


class Memories:
    """All memories of a cluster that can be found by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Memory] = {}

    def add(self, memory: Memory) -> None:
        must(memory.name not in self._by_name, f"memory {memory.name} is made twice")
        self._by_name[memory.name] = memory

    def find(self, name: str) -> Memory | None:
        return self._by_name.get(name)

    def remove(self, name: str) -> None:
        """Nobody finds it any more; who reads it already goes on."""
        self._by_name.pop(name, None)

    def all(self) -> list[Memory]:
        """Every memory that can be found, in the order of their making."""
        return list(self._by_name.values())


def cells_of(strip: Strip) -> I64:
    """The cells that a strip names, in its order."""
    for name in ("start", "stride", "length"):
        value = getattr(strip, name)
        must(value % CELL_BYTES == 0, f"{name} {value} of {strip.memory} is inside a cell")
    units = np.frombuffer(strip.units, "<i4").astype(np.int64)
    first = (strip.start + units * strip.stride) // CELL_BYTES
    cells: I64 = (first[:, None] + np.arange(strip.length // CELL_BYTES)).ravel()
    return cells


def fold(tags: U64) -> int:
    """What stands for the fold of the sums of so many parts; equal exactly for equal tags."""
    return int.from_bytes(blake2b(tags.tobytes(), digest_size=8).digest(), "little")


def garbage(name: str, number: int, count: int) -> U64:
    """[count] tags that stand for nothing else."""
    key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    return mixed(np.arange(count, dtype=np.uint64) + np.uint64(mix(key ^ number)))


def mixed(values: U64) -> U64:
    """SplitMix64's finalizer, of many numbers at once."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: U64 = values ^ (values >> np.uint64(31))
    return result
