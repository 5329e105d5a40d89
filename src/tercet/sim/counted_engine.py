"""An engine that counts and draws nothing: for large runs into whose blocks and texts nobody looks.

Of the same plans it makes results with the same counts, ends and durations as the real engine on
the `cost` device; every token is 0. No guesses, no stops, no borrowed blocks.
"""

from typing import NamedTuple

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import I64
from tercet.devices.cost.durations import Duration
from tercet.engine.engine import KvBlocks
from tercet.engine.slots import Flags
from tercet.messages.plan import FINISH_LENGTH, SlotOpening, StepPlan, StepResult
from tercet.program.costs import Sizes


class Counted(NamedTuple):
    """A step under way."""

    plan: StepPlan
    planned: I64
    """[P] its slots."""
    rows: I64
    """[P] none where the task has ended."""
    draws: Flags
    """[P]"""
    duration_ns: int


class CountedEngine:
    """One executor's slots as counts."""

    def __init__(
        self, duration: Duration, *, memory: KvBlocks, max_slots: int, context_max: int
    ) -> None:
        self._duration = duration
        self._memory = memory
        self._context_max = context_max
        self._known: I64 = np.zeros(max_slots, np.int64)
        self._computed: I64 = np.zeros(max_slots, np.int64)
        self._limit: I64 = np.zeros(max_slots, np.int64)
        self._ended: Flags = np.zeros(max_slots, bool)

    def start(self, plan: StepPlan) -> Counted:
        """Open slots, begin lives, and say how long the rows take."""
        must(not plan.guesses, f"step {plan.step}: guesses are not counted")
        fresh = [self._open(opening) for opening in plan.opens]
        if plan.blocks:
            fresh.append(_integers(plan.blocks))
        if plan.begins:
            self._memory.renew(np.concatenate(fresh), np.frombuffer(plan.begins, "<u4"))
        planned = _integers(plan.slots)
        live = ~self._ended[planned]
        rows = _integers(plan.rows) * live
        draws = (np.frombuffer(plan.samples, np.uint8) != 0) & live
        contexts = self._computed[planned] + rows
        must(
            bool((contexts <= self._known[planned]).all()),
            f"step {plan.step}: rows beyond what is known",
        )
        num_rows = int(rows.sum())
        sizes = Sizes(
            rows=num_rows,
            logits_rows=int(draws.sum()),
            attended_pairs=int((rows * contexts - rows * (rows - 1) // 2).sum()),
            context_tokens=int(contexts.sum()),
        )
        return Counted(plan, planned, rows, draws, self._duration(sizes) if num_rows else 0)

    def finish(self, counted: Counted) -> StepResult:
        """Move the slots on."""
        planned, draws = counted.planned, counted.draws
        self._computed[planned] += counted.rows
        drawn = planned[draws]
        self._known[drawn] += 1
        ends = self._known[drawn] >= self._limit[drawn]
        self._ended[drawn] = ends
        finishes = np.zeros(len(planned), np.uint8)
        finishes[draws] = np.where(ends, FINISH_LENGTH, 0)
        return StepResult(
            step=counted.plan.step,
            counts=draws.astype("<i4").tobytes(),
            tokens=bytes(4 * len(drawn)),
            finishes=finishes.tobytes(),
            computed=self._computed[planned].astype("<i4").tobytes(),
            duration_ns=counted.duration_ns,
        )

    def _open(self, opening: SlotOpening) -> I64:
        """Give the blocks of a slot in which nothing is computed yet."""
        slot, task = opening.slot, opening.task
        must(task.sampling.ignore_eos and not opening.lives, "only counts are counted")
        self._known[slot] = len(task.prompt) + len(task.generated)
        self._computed[slot] = opening.computed
        limit = len(task.prompt) + task.sampling.max_tokens
        self._limit[slot] = min(limit, self._context_max)
        self._ended[slot] = False
        return _integers(opening.blocks)[-(-opening.computed // BLOCK_TOKENS) :]


def _integers(data: bytes) -> I64:
    return np.frombuffer(data, "<i4").astype(np.int64)
