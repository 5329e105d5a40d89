"""Blocks that are reserved for a task and filled by transfers, range by range.

    blocks      | own hit | range 0 ......... | range 1 ........ | range 2 (not told yet) |
                ^ first   ^ moved, verified    ^ one move failed  ^
                          `- committed: others find it, the task hits it

Whatever happens, what is committed is a leading run of verified blocks. The reserved blocks are
given back only when no move writes to them any more.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, BlockId
from tercet.cache.cache import Cache, Holding
from tercet.messages.effects import Move
from tercet.messages.kv import BlocksReady, KvLayout, Reach, Strip


@dataclass(slots=True)
class _Range:
    first: int
    count: int
    num_moves: int
    good: bool = True


class Inflow:
    """Owns the reserved blocks from `reserve` to `close`."""

    def __init__(self, cache: Cache, holding: Holding, tokens: "array[int]") -> None:
        self.first = len(holding.table)
        """Blocks that were there already."""
        self.holding = holding
        self.num_under_way = 0
        self._cache = cache
        self._tokens = tokens
        self._ranges: list[_Range] = []
        self._of: dict[int, _Range] = {}
        """Moves under way, by ticket."""

    @classmethod
    def reserve(
        cls, cache: Cache, holding: Holding, tokens: "array[int]", *, num_blocks: int, spare: int
    ) -> "Inflow | None":
        """Extend a hit to so many blocks in all; None, and nothing changes, where that would leave
        fewer than `spare` to those that run.
        """
        inflow = cls(cache, holding, tokens)
        needed = num_blocks - inflow.first
        if needed + spare > cache.available or cache.extend(holding, needed) is None:
            return None
        return inflow

    @property
    def expected(self) -> int:
        """The block with which the next range must begin."""
        return self._ranges[-1].first + self._ranges[-1].count if self._ranges else self.first

    @property
    def arrived(self) -> bool:
        """Whether all that was told of is here."""
        return all(one.good and not one.num_moves for one in self._ranges)

    def expect(self, first: int, count: int, tickets: list[int]) -> None:
        """Take note of moves that fill blocks [first, first + count)."""
        must(first == self.expected, f"blocks from {first} come, from {self.expected} are missing")
        must(first + count <= len(self.holding.table), f"{first + count} blocks are not reserved")
        added = _Range(first, count, len(tickets))
        self._ranges.append(added)
        for ticket in tickets:
            self._of[ticket] = added
        self.num_under_way += len(tickets)

    def moved(self, ticket: int, *, good: bool) -> None:
        """Take note that a move has ended."""
        one = self._of.pop(ticket)
        one.num_moves -= 1
        one.good = one.good and good
        self.num_under_way -= 1

    def commit(self) -> int:
        """Let others find the leading run of blocks that are here; give its end, in blocks."""
        end = self.first
        for one in self._ranges:
            if not one.good or one.num_moves:
                break
            end = one.first + one.count
        self._cache.commit(self.holding, self._tokens, computed=BLOCK_TOKENS * end)
        return end

    def close(self) -> None:
        """Give all blocks back; what was committed stays cached. Nothing may be under way."""
        must(not self.num_under_way, f"{self.num_under_way} moves write to blocks that go back")
        self._cache.release(self.holding, self._tokens, computed=0)

    def target(self, reach: Reach, first: int, count: int, *, layer: int | None = None) -> Strip:
        """Name the memory of blocks [first, first + count), or one layer (from 0) of each."""
        blocks = self.holding.table[first : first + count]
        return strip_of(self._cache, reach, blocks, layer=layer)


def strip_of(
    cache: Cache, reach: Reach, blocks: list[BlockId], *, layer: int | None = None
) -> Strip:
    """Name own blocks, or one layer of each, in the lives that they are in."""
    units, lives = cache.refs(blocks)
    return strip_at(reach, units, lives, layer=layer)


def strip_at(reach: Reach, units: bytes, lives: bytes, *, layer: int | None = None) -> Strip:
    """Name blocks of somebody's arena, or one layer of each."""
    layout = layout_of(reach)
    start, length = reach.blocks_at, layout.block_bytes
    if layer is not None:
        length = layout.layer_bytes
        start += layer * length
    return Strip(reach.memory, start, layout.block_bytes, length, units, lives)


def behind(message: BlocksReady, first: int) -> BlocksReady:
    """The same without the blocks before `first`; checks are of all, so there is none."""
    skipped = 4 * (first - message.first)
    units, lives = message.units[skipped:], message.lives[skipped:]
    return replace(message, first=first, units=units, lives=lives, check=None)


def layout_of(reach: Reach) -> KvLayout:
    must(reach.layout is not None, f"{reach.memory or 'an executor'} has no layout")
    return reach.layout or KvLayout(
        dtype="none", block_tokens=BLOCK_TOKENS, layers=1, kv_heads=1, head_dim=1, block_bytes=1
    )


def pulled(
    inflow: Inflow,
    message: BlocksReady,
    *,
    source: Reach,
    own: Reach,
    deadline: int,
    ticket: Callable[[], int],
) -> list[Move]:
    """Give the moves that fetch what is lent: one, or one for each layer while it is computed."""
    layout = layout_of(source)
    count = len(message.units) // 4
    layers = range(layout.layers) if message.step else (None,)
    return [
        Move(
            ticket=ticket(),
            source=strip_at(source, message.units, message.lives, layer=layer),
            target=inflow.target(own, message.first, count, layer=layer),
            part_bytes=layout.layer_bytes,
            check=message.check,
            step=message.step,
            layer=0 if layer is None else layer + 1,
            deadline=deadline,
            cause=f"ask {message.ask}",
        )
        for layer in layers
    ]
