"""Blocks of others that slots read in place: are they still in the lives in which they were lent?

    table    | 4103 | 4107 | 4101 | 17 | 18 |        ids of a peer's arena, then our own
              '-- lent, in lives 3 9 4 --'

Looked at before every step that reads them and after it: what was read between two good looks was
what was lent, whatever its owner does. A slot that fails has ended: its step counts for nothing.
"""

from typing import Protocol

import numpy as np

from tercet.base.errors import must
from tercet.devices.contract import I64
from tercet.engine.memory import U32
from tercet.messages.plan import SlotOpening

_NO_PLACES: I64 = np.zeros(0, np.int64)
_NO_LIVES: U32 = np.zeros(0, np.uint32)


class Lives(Protocol):
    """Generations of the blocks of all mapped arenas."""

    @property
    def lives(self) -> U32: ...

    def life_places(self, block_ids: I64) -> I64:
        """Index in `lives` of each block's generation."""
        ...


class Borrowed:
    """What the open slots read of others."""

    def __init__(self, memory: Lives) -> None:
        self._memory = memory
        self._of: dict[int, tuple[I64, U32]] = {}
        self._looked_at: list[int] = []
        """Slots that the arrays below are of: most steps look at the same ones."""
        self._places = _NO_PLACES
        self._expected = _NO_LIVES
        self._starts: I64 = _NO_PLACES

    def open(self, opening: SlotOpening) -> None:
        """Note what the slot reads of others, if anything."""
        if not opening.lives:
            return
        lives = np.frombuffer(opening.lives, "<u4")
        blocks = np.frombuffer(opening.blocks, "<i4").astype(np.int64)
        ids = blocks[opening.borrowed_at : opening.borrowed_at + len(lives)]
        must(
            len(ids) == len(lives), f"slot {opening.slot}: {len(lives)} lives of {len(ids)} blocks"
        )
        self._of[opening.slot] = self._memory.life_places(ids), lives
        self._looked_at = []

    def close(self, slot: int) -> None:
        if self._of.pop(slot, None) is not None:
            self._looked_at = []

    def __bool__(self) -> bool:
        return bool(self._of)

    def stale(self, slots: list[int]) -> list[int]:
        """Those of the slots that hold a block which is not what was lent."""
        reading = [slot for slot in slots if slot in self._of]
        if not reading:
            return []
        if reading != self._looked_at:
            self._look_at(reading)
        wrong = self._memory.lives[self._places] != self._expected
        if not wrong.any():
            return []
        failed = np.logical_or.reduceat(wrong, self._starts)
        return [slot for slot, gone in zip(reading, failed.tolist(), strict=True) if gone]

    def _look_at(self, reading: list[int]) -> None:
        parts = [self._of[slot] for slot in reading]
        lengths = np.array([len(lives) for _, lives in parts])
        self._places = np.concatenate([places for places, _ in parts])
        self._expected = np.concatenate([lives for _, lives in parts])
        self._starts = np.cumsum(lengths) - lengths
        self._looked_at = reading
