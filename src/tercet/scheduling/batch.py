"""The plan of one step as flat arrays; decoding rows first, then chunks of prompts.

    runs      [ decodes .................. | chunks ...... ]
    slots     [ 4 | 0 | 7 | 1 | 2          | 9    | 3      ]
    rows      [ 1 | 1 | 1 | 1 | 1          | 512  | 96     ]
    samples   [ 1 | 1 | 1 | 1 | 1          | 0    | 1      ]      u1; all others i4

While the same tasks decode, their part of the arrays is the same bytes: it is built once.
"""

from array import array

from msgspec import Struct

from tercet.base.ids import BLOCK_TOKENS
from tercet.cache.blocks import BlockPool
from tercet.messages.plan import SlotOpening, StepPlan
from tercet.scheduling.run import TaskRun


class Chunk(Struct, frozen=True):
    """Some known tokens of a task that are computed by a step."""

    run: TaskRun
    rows: int
    samples: bool


def start(chunks: list[Chunk]) -> list[TaskRun]:
    """Give those that have never been in a step, and note that now they are."""
    opened = [chunk.run for chunk in chunks if not chunk.run.started]
    for run in opened:
        run.started = True
    return opened


class Planned(Struct, kw_only=True):
    """A plan under way and whom its arrays name."""

    plan: StepPlan
    runs: list[TaskRun]
    """In the plan's order."""
    opened: list[TaskRun]
    """Those whose first step at this executor this is."""
    num_decodes: int
    """So many leading entries of `runs` compute one row and sample."""
    predicted_ns: int
    """Without rows that verify guesses."""
    rows: int
    pairs: int


class BatchWriter:
    """Writes plans; keeps the bytes of the decoding part until its tasks change. `pool` knows which
    lives blocks are in.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._decodes: list[TaskRun] = []
        self._slots = b""
        self._ones = b""
        self._zeros = b""
        self._samples = b""

    def write(
        self,
        step: int,
        *,
        ends: tuple[tuple[int, ...], tuple[SlotOpening, ...]],
        decodes: list[TaskRun],
        grown: dict[int, tuple[int, ...]],
        chunks: list[Chunk],
        guesses: bytes = b"",
    ) -> StepPlan:
        """Give the plan. `ends`: slots to close and to open; `grown`: place among the decodes ->
        new blocks of its table; `guesses`: of the decodes, or empty. The caller must not change
        `decodes` afterwards.
        """
        if decodes is not self._decodes:
            self._decodes = decodes
            self._slots = array("i", [run.slot for run in decodes]).tobytes()
            self._ones = array("i", [1]).tobytes() * len(decodes)
            self._zeros = bytes(4 * len(decodes))
            self._samples = b"\x01" * len(decodes)
        slots, rows, samples, growth = self._slots, self._ones, self._samples, self._zeros
        added = array("i")
        if grown:
            counts = array("i", growth)
            for at in sorted(grown):
                counts[at] = len(grown[at])
                added.extend(grown[at])
            growth = counts.tobytes()
        if chunks:
            slots += array("i", [chunk.run.slot for chunk in chunks]).tobytes()
            rows += array("i", [chunk.rows for chunk in chunks]).tobytes()
            samples += bytes([chunk.samples for chunk in chunks])
            growth += bytes(4 * len(chunks))
            guesses += bytes(len(chunks)) if guesses else b""
        return StepPlan(
            step=step,
            closes=ends[0],
            opens=ends[1],
            slots=slots,
            rows=rows,
            samples=samples,
            growth=growth,
            blocks=added.tobytes(),
            guesses=guesses,
            begins=self._begins(ends[1], added) if added or ends[1] else b"",
        )

    def _begins(self, opens: tuple[SlotOpening, ...], added: "array[int]") -> bytes:
        """Give the lives of the blocks in which nothing is computed yet."""
        fresh = array("i")
        for opening in opens:
            table = array("i", opening.blocks)
            fresh += table[-(-opening.computed // BLOCK_TOKENS) :]
        return self._pool.lives(fresh + added)
