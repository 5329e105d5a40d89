"""Runs plans on a device, in order."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.devices.contract import I64, U64, Executable, Outputs
from tercet.engine.batch import Seating, build, seat, without
from tercet.engine.borrowed import Borrowed, Lives
from tercet.engine.drafts import Drafter, lookup
from tercet.engine.measure import measure
from tercet.engine.memory import U32
from tercet.engine.settle import nothing, settle, with_stale
from tercet.engine.slots import Slots
from tercet.messages.plan import StepCost, StepPlan, StepResult

CLOCK_LAYERS = 16
"""Bits of the layer clock below the step."""


class KvBlocks(Lives, Protocol):
    """What an engine asks of KV memory besides what the device asks (`devices.contract`)."""

    @property
    def num_ids(self) -> int:
        """Block ids are below this."""
        ...

    @property
    def own_blocks(self) -> range:
        """Block ids that this engine may write to."""
        ...

    def renew(self, block_ids: I64, lives: U32) -> None:
        """These blocks begin these lives: whoever still reads a former one can tell."""
        ...

    def clock(self) -> U64:
        """[1] `(step << 16) | layers done` of this engine, where others can read it."""
        ...


class Started(NamedTuple):
    """A step whose rows are computed and that the slots do not know of yet."""

    plan: StepPlan
    seating: Seating
    outputs: Outputs | None
    """None: no row was left to compute."""
    planned: list[int] | None
    """The plan's slots, where any slot borrows."""
    stale: list[int]
    """Slots whose borrowed blocks were others already."""


class Engine:
    """One model on one device with its slots. Not thread-safe: one thread runs the plans.

    `clock` gives nanoseconds; it times the steps of devices that do not say how long they took.
    """

    def __init__(
        self,
        executable: Executable,
        *,
        shape: ModelShape,
        memory: KvBlocks,
        max_slots: int,
        clock: Callable[[], int],
    ) -> None:
        self.executable = executable
        self.shape = shape
        self.memory = memory
        self.slots = Slots(max_slots=max_slots, shape=shape)
        self.drafter: Drafter = lookup
        """Whose guesses are verified where a plan asks for some."""
        self._clock = clock
        self._borrowed = Borrowed(memory)
        self._layers = memory.clock()

    def run(self, plan: StepPlan) -> StepResult:
        """Carry out closes, opens and rows of the plan; what came out, in the plan's order."""
        return self.finish(self.start(plan))

    def start(self, plan: StepPlan) -> Started:
        """Carry out closes and opens, compute the rows; the slots know nothing of it before
        `finish`. Under virtual time the two are a step's duration apart.
        """
        began = self._clock()
        fresh: list[I64] = []
        for slot in plan.closes:
            self.slots.close(slot)
            self._borrowed.close(slot)
        for opening in plan.opens:
            self.slots.open(opening)
            self._borrowed.open(opening)
            blocks = np.frombuffer(opening.blocks, "<i4").astype(np.int64)
            self._check_ids(blocks)
            fresh.append(blocks[-(-opening.computed // BLOCK_TOKENS) :])
        if plan.blocks:
            fresh.append(np.frombuffer(plan.blocks, "<i4").astype(np.int64))
            self._check_ids(fresh[-1])
        if plan.begins:
            self._begin(fresh, plan.begins)
        planned, stale = None, []
        if self._borrowed:
            planned = np.frombuffer(plan.slots, "<i4").tolist()
            stale = self._drop_stale(planned)
        seating = seat(self.slots, plan, drafter=self.drafter)
        if not len(seating.slots):
            self._layers[0] = (plan.step + 1) << CLOCK_LAYERS
            return Started(plan, seating, None, planned, stale)
        self._layers[0] = plan.step << CLOCK_LAYERS
        outputs = self.executable.run(build(self.slots, seating))
        self._layers[0] = (plan.step + 1) << CLOCK_LAYERS
        outputs.duration_ns = outputs.duration_ns or self._clock() - began
        return Started(plan, seating, outputs, planned, stale)

    def finish(self, started: Started) -> StepResult:
        """Move the slots on. Blocks of others that the step read are looked at again: what it
        computed from others than were lent counts for nothing.
        """
        plan, seating, stale = started.plan, started.seating, started.stale
        late: list[int] = []
        if started.planned is not None and started.outputs is not None:
            late = self._drop_stale([slot for slot in started.planned if slot not in stale])
            if late:
                seating = without(seating, late)
        if started.outputs is None:
            result = nothing(self.slots, seating.planned, step=plan.step)
        else:
            result = settle(self.slots, seating, started.outputs, step=plan.step)
        return with_stale(result, started.planned or [], stale + late)

    def _drop_stale(self, planned: list[int]) -> list[int]:
        """Those whose borrowed blocks are others now: nothing more is computed of them."""
        stale = self._borrowed.stale(planned)
        if stale:
            self.slots.ended[stale] = True
        return stale

    def measure(self) -> StepCost:
        """How long steps take; before the first plan, since it writes to blocks."""
        must(not self.slots.opened.any(), "an engine that holds tasks is measured")
        return measure(
            self.executable,
            shape=self.shape,
            blocks=self.memory.own_blocks,
            clock=self._clock,
        )

    def _check_ids(self, blocks: I64) -> None:
        must(
            not len(blocks) or (blocks.min() >= 0 and blocks.max() < self.memory.num_ids),
            f"a block id outside the {self.memory.num_ids} of the arenas",
        )

    def _begin(self, fresh: list[I64], begins: bytes) -> None:
        """Say which lives begin, before anything is written; the numbers are the machine's."""
        blocks = np.concatenate(fresh) if fresh else np.zeros(0, np.int64)
        lives = np.frombuffer(begins, "<u4")
        must(len(lives) == len(blocks), f"{len(lives)} lives for {len(blocks)} fresh blocks")
        self.memory.renew(blocks, lives)
