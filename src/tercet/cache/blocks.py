"""The lives of the KV blocks of one arena.

                    take                    last drop, not indexed
        +------+ ----------> +-----------+ -------------------------> FREE
        | FREE |             |   HELD    |
        +------+             | holds > 0 | <---------------+
            ^                +-----------+      hold       |
            |                      | last drop, indexed    |
            |        evict         v                       |
            +------------------ +--------+ ----------------+
                                | CACHED |   held by nobody, found by the index;
                                +--------+   least recently used first in line

    free + held + cached = total, after every call (I2).

A block begins a new generation each time it is taken, so a reference (arena, index, generation)
of a former life is known to be stale. `indexed` says that the radix tree names the block: it may
be held or cached, never free.

This is the only count of lives. What writes to a block that was taken is told the number of its
life by the machine (`StepPlan.begins`, `lives` of a `Move`'s target) and stores it in the arena's
directory before the first byte; nobody counts there. A life in which nothing was written is never
stored: the directory then shows the life that the bytes are of. So whoever was lent (block, life)
and finds that life in the directory before and after reading has read that life's bytes.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from tercet.base.errors import must
from tercet.base.ids import BlockId, BlockRef

_LIFE_MASK = (1 << 32) - 1
"""Lives are u4 wherever they leave the machine."""


class BlockPool:
    """Counts who holds which block; O(1) a call. Block ids are `first` ... `first + total - 1`."""

    def __init__(self, total: int, *, arena: int = 0, first: int = 0) -> None:
        must(total >= 1, f"a pool of {total} blocks")
        self.total = total
        self.num_held = 0
        self._arena = arena
        self._first = first
        self._free = list(range(total - 1, -1, -1))
        self._holds = [0] * total
        self._generations = [0] * total
        self._indexed = bytearray(total)
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that a taker can get: free ones, and cached ones after their eviction."""
        return len(self._free) + len(self._cached)

    def take(self) -> BlockId:
        """Hold a free block for the first time in its new life."""
        must(self._free, "take from a pool without a free block")
        index = self._free.pop()
        self._holds[index] = 1
        self._generations[index] += 1
        self.num_held += 1
        return BlockId(self._first + index)

    def hold(self, block: BlockId) -> None:
        """Hold a held or cached block once more."""
        index = block - self._first
        if not self._holds[index]:
            must(index in self._cached, f"hold of block {block}, which is free")
            del self._cached[index]
            self.num_held += 1
        self._holds[index] += 1

    def drop(self, block: BlockId) -> None:
        """Hold it once less; the last drop makes it cached (indexed: most recently used) or
        free.
        """
        index = block - self._first
        holds = self._holds[index] - 1
        must(holds >= 0, f"drop of block {block}, which nobody holds")
        self._holds[index] = holds
        if holds:
            return
        self.num_held -= 1
        if self._indexed[index]:
            self._cached[index] = None
        else:
            self._free.append(index)

    def mark_indexed(self, block: BlockId) -> None:
        """Note that the index names this held block."""
        index = block - self._first
        must(self._holds[index], f"index of block {block}, which nobody holds")
        must(not self._indexed[index], f"index of block {block} twice")
        self._indexed[index] = 1

    def touch(self, block: BlockId) -> None:
        """Make a cached block the most recently used; a held one is in use anyway."""
        index = block - self._first
        if index in self._cached:
            self._cached.move_to_end(index)

    def oldest(self) -> BlockId | None:
        """Give the least recently used cached block, if there is one."""
        for index in self._cached:
            return BlockId(self._first + index)
        return None

    def evict(self, block: BlockId) -> None:
        """Free a cached block; the caller has taken it out of the index."""
        index = block - self._first
        must(index in self._cached, f"eviction of block {block}, which is not cached")
        del self._cached[index]
        self._indexed[index] = 0
        self._free.append(index)

    def is_cached(self, block: BlockId) -> bool:
        return block - self._first in self._cached

    def holds(self, block: BlockId) -> int:
        """Give how many hold the block."""
        return self._holds[block - self._first]

    def ref(self, block: BlockId) -> BlockRef:
        """Give the name of the block in its present life."""
        index = block - self._first
        return BlockRef(self._arena, index, self._generations[index])

    def owns(self, block: BlockId) -> bool:
        """Say whether the block is one of this pool, not of an arena that somebody lends."""
        return 0 <= block - self._first < self.total

    def indices(self, blocks: Iterable[int]) -> bytes:
        """Give the places of blocks in the arena, i4."""
        first = self._first
        return array("i", [block - first for block in blocks]).tobytes()

    def lives(self, blocks: Iterable[int]) -> bytes:
        """Give the numbers of the lives that blocks are in, u4."""
        first, generations = self._first, self._generations
        return array("I", [generations[block - first] & _LIFE_MASK for block in blocks]).tobytes()

    def is_current(self, ref: BlockRef) -> bool:
        """Say whether the reference still names what it named when it was made."""
        return (
            ref.arena == self._arena
            and 0 <= ref.index < self.total
            and self._generations[ref.index] == ref.generation
            and (self._holds[ref.index] > 0 or ref.index in self._cached)
        )

    def in_order_of_use(self, most: int | None = None) -> list[BlockId]:
        """Give the cached blocks, or so many of them at most, least recently used first."""
        return [BlockId(self._first + index) for index in islice(self._cached, most)]

    def check_sums(self) -> None:
        """Raise unless free + held + cached = total; O(1)."""
        found = len(self._free) + self.num_held + len(self._cached)
        must(
            found == self.total,
            f"{len(self._free)} free + {self.num_held} held + {len(self._cached)} cached blocks "
            f"are {found}, not {self.total}",
        )

    def check(self) -> None:
        """Raise unless every block is in exactly one state; O(blocks)."""
        self.check_sums()
        held = sum(1 for holds in self._holds if holds > 0)
        must(held == self.num_held, f"{held} blocks are held, the pool counts {self.num_held}")
        seen = bytearray(self.total)
        for index in self._free:
            must(not seen[index], f"block {index} is free twice")
            must(not self._holds[index], f"block {index} is free and held")
            must(not self._indexed[index], f"block {index} is free and indexed")
            seen[index] = 1
        for index in self._cached:
            must(not seen[index], f"block {index} is free and cached")
            must(not self._holds[index], f"block {index} is cached and held")
            must(self._indexed[index], f"block {index} is cached and not indexed")
