"""I3: whatever a step reads as context is the KV of the slot's own tokens.

    tokens    t0 t1 t2 ... t15 | t16 ...          a slot's
    sums      root + m(0, t0) + m(1, t1) ...      after each token; what comes before is all in it
    tag       of a block: the sum at its last computed token, another one in each layer

Tags are written as steps compute and travel with moves (`sim/moves.py`); a block of another prompt,
another tenant, another life, a torn or a corrupt copy has another tag.
"""

from dataclasses import dataclass

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, TaskId, show_task
from tercet.cache.identity import root_key
from tercet.devices.contract import I64, U64
from tercet.engine.batch import Seating
from tercet.engine.slots import Slots
from tercet.messages.plan import StepPlan
from tercet.sim.arenas import Range
from tercet.sim.memories import mixed

_SHIFT = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Reads:
    """Blocks that a step reads: of which slot, and what they must be."""

    owners: I64
    blocks: I64
    expected: U64
    foreign_at: I64

    @property
    def foreign(self) -> "Reads":
        """Those in arenas of others."""
        at = self.foreign_at
        every: I64 = np.arange(len(at))
        return Reads(self.owners[at], self.blocks[at], self.expected[at], every)


class ContentChecker:
    """Of one engine: what its steps compute, and whether what they read is right."""

    def __init__(self, name: str, fingerprint: str, memory: Range, slots: Slots) -> None:
        self._name = name
        self._fingerprint = fingerprint
        self._memory = memory
        self._slots = slots
        self._sums: U64 = np.zeros((slots.max_slots, slots.context_max), np.uint64)
        self._roots: U64 = np.zeros(slots.max_slots, np.uint64)
        self._tasks: dict[int, TaskId] = {}
        layers = np.arange(1, memory.own.layers + 1, dtype=np.uint64)
        self._salts: U64 = mixed(layers << _SHIFT)
        self.num_read = 0
        self.num_foreign = 0
        """Blocks that were read, and those of them that lay in another's arena."""

    def opened(self, plan: StepPlan) -> None:
        """Note what the opened slots hold, after the engine opened them."""
        for opening in plan.opens:
            slot, task = opening.slot, opening.task
            root = root_key(task.namespace, self._fingerprint)
            self._roots[slot] = int.from_bytes(root[:8], "little")
            self._tasks[slot] = task.id
            known = int(self._slots.known[slot])
            self._sums[slot, :known] = self._roots[slot] + np.cumsum(
                _marks(self._slots.tokens[slot, :known], np.arange(known))
            )

    def reads(self, seated: I64) -> "Reads":
        """What the seated slots read, before they are settled."""
        starts = self._slots.computed[seated]
        owners, places = _ragged(seated, -(-starts // BLOCK_TOKENS))
        lasts = np.minimum((places + 1) * BLOCK_TOKENS, self._slots.computed[owners]) - 1
        expected = self._sums[owners, lasts][:, None] ^ self._salts
        blocks = self._slots.table[owners, places].astype(np.int64)
        foreign = blocks >= len(self._memory.own_blocks)
        self.num_read += len(blocks)
        self.num_foreign += int(foreign.sum())
        return Reads(owners, blocks, expected, foreign_at=np.flatnonzero(foreign))

    def compare(self, step: int, reads: "Reads", *, without: list[int] | None = None) -> None:
        """Raise unless all that is read is what its reader takes it for; slots that are told to
        be stale do not count.
        """
        if not len(reads.blocks):
            return
        wrong = (self._memory.tags(reads.blocks) != reads.expected).any(axis=1)
        if without and wrong.any():
            wrong &= ~np.isin(reads.owners, without)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            slot = int(reads.owners[at])
            must(
                False,
                f"{self._name} step {step}: wrong KV in block {reads.blocks[at]} of slot {slot}, "
                f"task {show_task(self._tasks[slot])}",
            )

    def computes(self, seating: Seating) -> tuple[I64, U64]:
        """(blocks, [blocks, layers] tags) that a step gives, guessed tokens included."""
        seated, counts = seating.slots, seating.rows
        starts = self._slots.computed[seated]
        owners, numbers = _ragged(seated, counts)
        positions = numbers + np.repeat(starts, counts)
        sums = np.cumsum(_marks(self._slots.tokens[owners, positions], positions))
        ends = np.cumsum(counts)
        before = np.concatenate([sums[:0], np.zeros(1, np.uint64), sums[ends[:-1] - 1]])
        base = np.where(starts > 0, self._sums[seated, starts - 1], self._roots[seated])
        self._sums[owners, positions] = sums + np.repeat(base - before, counts)
        first = starts // BLOCK_TOKENS
        return self._tagged(seated, first, starts + counts)

    def settled(self, seating: Seating) -> tuple[I64, U64]:
        """The same for the blocks in which wrong guesses were computed: what is true of them."""
        if seating.drafts is None:
            return np.zeros(0, np.int64), np.zeros((0, len(self._salts)), np.uint64)
        owners = seating.slots[seating.drawn]
        computed = self._slots.computed[owners]
        return self._tagged(owners, (computed - 1) // BLOCK_TOKENS, computed)

    def _tagged(self, seated: I64, first: I64, ends: I64) -> tuple[I64, U64]:
        owners, numbers = _ragged(seated, -(-ends // BLOCK_TOKENS) - first)
        counts = -(-ends // BLOCK_TOKENS) - first
        places = numbers + np.repeat(first, counts)
        lasts = np.minimum((places + 1) * BLOCK_TOKENS, np.repeat(ends, counts)) - 1
        blocks = self._slots.table[owners, places].astype(np.int64)
        top = int(blocks.max(initial=0))
        must(top < len(self._memory.own_blocks), f"{self._name} writes to block {top} of another")
        return blocks, self._sums[owners, lasts][:, None] ^ self._salts


def _marks(tokens: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]", positions: I64) -> U64:
    """[n] a number for each token at its position."""
    return mixed(tokens.astype(np.uint64) | (positions.astype(np.uint64) + np.uint64(1)) << _SHIFT)


def _ragged(owners: I64, counts: I64) -> tuple[I64, I64]:
    """(each owner `counts` times, 0 .. count - 1 for each)."""
    repeated = np.repeat(owners, counts)
    numbers = np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)
    return repeated, numbers
