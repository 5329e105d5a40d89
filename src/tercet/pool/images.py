"""The model cache's blocks: one image that comes from all hosts that have parts of it.

blocks      0 1 2 3 4 5 ...            of 4 MiB; the last one shorter
have        # # . . # .                verified by their sums, readable by others at once
source A    # # # # # #                every source is asked for the block that the fewest
source B    . # . # . .                have, so that hosts that load together serve each other
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from tercet.base.errors import must

BLOCK_BYTES = 4 << 20
PER_SOURCE_MAX = 2
"""Blocks of one source under way at a time: one on its way while the next is asked for."""
CANDIDATES = 64
"""So many missing blocks of a source are compared when the next one is chosen."""
BAD_BLOCKS_MAX = 3
"""A source of so many blocks that were not what it said is not asked again."""


def num_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES)


def block_span(size: int, block: int) -> tuple[int, int]:
    """Give (first byte, length) of a block."""
    start = block * BLOCK_BYTES
    return start, min(BLOCK_BYTES, size - start)


@dataclass(slots=True)
class _Source:
    have: bytes
    checks: tuple[int, ...]
    num_under_way: int = 0
    num_asked: int = 0
    num_bad: int = 0
    bad: dict[int, None] = field(default_factory=dict)
    """Blocks that came from it and were not what it said."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One block to be copied now."""

    block: int
    memory: str
    check: int


class ImageLoad:
    """Which blocks are there, which are under way from where, and which come next."""

    def __init__(self, size: int, *, first: int = 0) -> None:
        """`first`: among blocks that equally many have, the one to begin with (modulo)."""
        must(size > 0, f"an image of {size} bytes")
        self.size = size
        self.num_blocks = num_blocks(size)
        self.have = bytearray(self.num_blocks)
        self.checks = [0] * self.num_blocks
        self._sources: dict[str, _Source] = {}
        self._under_way: dict[int, Fetch] = {}
        self._holders = [0] * self.num_blocks
        """Of each block: how many sources have it."""
        order = (*range(first % self.num_blocks, self.num_blocks), *range(first % self.num_blocks))
        self._missing = dict.fromkeys(order)

    @property
    def whole(self) -> bool:
        return not self._missing

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def told(self, memory: str, have: bytes, checks: tuple[int, ...]) -> None:
        """Take note of what a source has now; words that do not fit the image are passed by."""
        if len(have) != self.num_blocks or len(checks) != self.num_blocks:
            return
        known = self._sources.get(memory)
        if known is None:
            coming = sum(fetch.memory == memory for fetch in self._under_way.values())
            self._sources[memory] = _Source(have, checks, num_under_way=coming)
            gained = have
        else:
            gained = bytes(new and not old for new, old in zip(have, known.have, strict=True))
            self._forget(known.have, but=have)
            known.have, known.checks = have, checks
        for block in _blocks_of(gained):
            self._holders[block] += 1

    def lost(self, memory: str) -> None:
        """Ask a source for nothing more; what is under way from it will end by itself."""
        source = self._sources.pop(memory, None)
        if source is not None:
            self._forget(source.have)

    def next(self) -> Fetch | None:
        """Give a block to be copied now, and count it as under way; None: none now."""
        free = [
            (source.num_under_way, source.num_asked, memory)
            for memory, source in self._sources.items()
            if source.num_under_way < PER_SOURCE_MAX
        ]
        for _, _, memory in sorted(free):
            block = self._rarest(memory)
            if block is not None:
                source = self._sources[memory]
                source.num_under_way += 1
                source.num_asked += 1
                fetch = self._under_way[block] = Fetch(block, memory, source.checks[block])
                return fetch
        return None

    def ended(self, block: int, *, good: bool, corrupt: bool = False) -> None:
        """Take note how a block's copy ended."""
        fetch = self._under_way.pop(block)
        source = self._sources.get(fetch.memory)
        if good:
            self.have[block] = 1
            del self._missing[block]
            self.checks[block] = fetch.check
        if source is None:
            return
        source.num_under_way -= 1
        if not good:
            source.bad[block] = None
            source.num_bad += 1
            if not corrupt or source.num_bad >= BAD_BLOCKS_MAX:
                self.lost(fetch.memory)

    def _rarest(self, memory: str) -> int | None:
        source = self._sources[memory]
        held = (
            block
            for block in self._missing
            if source.have[block] and block not in source.bad and block not in self._under_way
        )
        return min(islice(held, CANDIDATES), key=self._holders.__getitem__, default=None)

    def _forget(self, had: bytes, *, but: bytes | None = None) -> None:
        """A source has these no more, but for those it has still."""
        for block in _blocks_of(had):
            if but is None or not but[block]:
                self._holders[block] -= 1

    def check(self) -> None:
        """Raise unless counts agree with what is under way and what sources have."""
        for block, count in enumerate(self._holders):
            found = sum(bool(source.have[block]) for source in self._sources.values())
            must(found == count, f"block {block}: {found} sources have it, {count} counted")
            must((block in self._missing) != bool(self.have[block]), f"block {block} is missing?")
        for memory, source in self._sources.items():
            found = sum(fetch.memory == memory for fetch in self._under_way.values())
            must(found <= source.num_under_way, f"{memory}: {found} blocks under way, counted less")
        for block in self._under_way:
            must(not self.have[block], f"block {block} is there and under way")


def _blocks_of(have: bytes) -> Iterator[int]:
    return (block for block, there in enumerate(have) if there)
