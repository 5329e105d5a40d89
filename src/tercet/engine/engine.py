"""Runs plans on a device, in order."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.devices.contract import I64, Executable
from tercet.engine.batch import build, seat
from tercet.engine.drafts import Drafter, lookup
from tercet.engine.measure import measure
from tercet.engine.settle import nothing, settle
from tercet.engine.slots import Slots
from tercet.messages.plan import StepCost, StepPlan, StepResult


class KvBlocks(Protocol):
    """What an engine asks of KV memory besides what the device asks (`devices.contract`)."""

    @property
    def num_ids(self) -> int:
        """Block ids are below this."""
        ...

    @property
    def own_blocks(self) -> range:
        """Block ids that this engine may write to."""
        ...

    def renew(self, block_ids: I64) -> None:
        """These blocks begin another life: whoever still reads the former one can tell."""
        ...


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

    def run(self, plan: StepPlan) -> StepResult:
        """Carry out closes, opens and rows of the plan; what came out, in the plan's order."""
        started = self._clock()
        for slot in plan.closes:
            self.slots.close(slot)
        for opening in plan.opens:
            self.slots.open(opening)
            blocks = np.frombuffer(opening.blocks, "<i4").astype(np.int64)
            held = -(-opening.computed // BLOCK_TOKENS)
            self._renew(blocks, held)
        if plan.blocks:
            self._renew(np.frombuffer(plan.blocks, "<i4").astype(np.int64), 0)
        seating = seat(self.slots, plan, drafter=self.drafter)
        if not len(seating.slots):
            return nothing(self.slots, seating.planned, step=plan.step)
        outputs = self.executable.run(build(self.slots, seating))
        outputs.duration_ns = outputs.duration_ns or self._clock() - started
        return settle(self.slots, seating, outputs, step=plan.step)

    def measure(self) -> StepCost:
        """How long steps take; before the first plan, since it writes to blocks."""
        must(not self.slots.opened.any(), "an engine that holds tasks is measured")
        return measure(
            self.executable,
            shape=self.shape,
            blocks=self.memory.own_blocks,
            clock=self._clock,
        )

    def _renew(self, blocks: I64, held: int) -> None:
        """Check the ids; those from `held` on are fresh, the others hold what is shared."""
        must(
            not len(blocks) or (blocks.min() >= 0 and blocks.max() < self.memory.num_ids),
            f"a block id outside the {self.memory.num_ids} of the arenas",
        )
        if len(blocks) > held:
            self.memory.renew(blocks[held:])
