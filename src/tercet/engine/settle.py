"""From a device's `Outputs` to what happened: the slots move on, a `StepResult` tells of it."""

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.devices.contract import I32, I64, Outputs
from tercet.engine.batch import Seating
from tercet.engine.slots import Slots
from tercet.jobs.job import TokenLogprobs
from tercet.messages.plan import FINISH_LENGTH, FINISH_STOP, StepResult

U8 = NDArray[np.uint8]


def settle(slots: Slots, seating: Seating, outputs: Outputs, *, step: int) -> StepResult:
    """Move the slots on by what the step computed and drew, and report it in the plan's order."""
    computed_before = slots.computed[seating.slots]
    slots.computed[seating.slots] = computed_before + seating.rows
    owners = seating.slots[seating.drawn]
    tokens = outputs.tokens[seating.drawn_rows]
    must(
        tokens.min(initial=0) >= 0 and tokens.max(initial=0) < slots.vocab,
        f"step {step}: the device drew a token outside the vocabulary of {slots.vocab}",
    )
    finishes = _advance(slots, owners, tokens)
    gained = np.zeros(len(seating.planned), np.int32)
    gained[seating.place[seating.drawn]] = 1
    finished = np.zeros(len(seating.planned), np.uint8)
    finished[seating.place[seating.drawn]] = finishes
    return StepResult(
        step=step,
        counts=gained.astype("<i4", copy=False).tobytes(),
        tokens=tokens.astype("<i4", copy=False).tobytes(),
        finishes=finished.tobytes(),
        computed=slots.computed[seating.planned].astype("<i4").tobytes(),
        logprobs=_logprobs(slots, seating, outputs),
        prompt_logprobs=_prompt_logprobs(slots, seating, outputs, computed_before),
        duration_ns=outputs.duration_ns,
    )


def nothing(slots: Slots, planned: I64, *, step: int) -> StepResult:
    """The result of a step in which no row was left to compute."""
    return StepResult(
        step=step,
        counts=bytes(4 * len(planned)),
        finishes=bytes(len(planned)),
        computed=slots.computed[planned].astype("<i4").tobytes(),
    )


def _advance(slots: Slots, owners: I64, tokens: I32) -> U8:
    """Append each owner's token; [D] how that ended the task."""
    at = slots.known[owners]
    slots.tokens[owners, at] = tokens
    slots.known[owners] = at + 1
    stopped = (slots.stops[owners] == tokens[:, None]).any(axis=1)
    if slots.stop_sets or slots.counts:
        for index, (slot, token) in enumerate(zip(owners.tolist(), tokens.tolist(), strict=True)):
            if slot in slots.stop_sets:
                stopped[index] = token in slots.stop_sets[slot]
            if slot in slots.counts:
                slots.counts[slot].add(token)
    stopped &= at >= slots.stops_from[owners]
    finishes = np.where(
        stopped,
        np.uint8(FINISH_STOP),
        np.where(at + 1 >= slots.limit[owners], np.uint8(FINISH_LENGTH), np.uint8(0)),
    )
    slots.ended[owners] = finishes != 0
    return finishes


def _logprobs(
    slots: Slots, seating: Seating, outputs: Outputs
) -> tuple[tuple[int, tuple[TokenLogprobs, ...]], ...]:
    wanted = slots.num_logprobs[seating.slots[seating.drawn]]
    told = []
    for index in np.flatnonzero(wanted >= 0).tolist():
        row = int(seating.drawn_rows[index])
        entry = TokenLogprobs(
            int(outputs.tokens[row]),
            float(outputs.logprobs[row]),
            int(outputs.ranks[row]),
            _top(outputs, row, int(wanted[index])),
        )
        told.append((int(seating.place[seating.drawn[index]]), (entry,)))
    return tuple(told)


def _prompt_logprobs(
    slots: Slots, seating: Seating, outputs: Outputs, computed_before: I64
) -> tuple[tuple[int, tuple[TokenLogprobs | None, ...]], ...]:
    if not (slots.prompt_logprobs[seating.slots] >= 0).any():
        return ()
    told = []
    ranges = {which: (first, count) for which, first, count in seating.scored}
    for which in np.flatnonzero(slots.prompt_logprobs[seating.slots] >= 0).tolist():
        first, count = ranges.get(which, (0, 0))
        slot, start = int(seating.slots[which]), int(computed_before[which])
        entries: list[TokenLogprobs | None] = [None] if start == 0 else []
        entries += [
            TokenLogprobs(
                int(slots.tokens[slot, start + 1 + row - first]),
                float(outputs.scored_logprobs[row]),
                int(outputs.scored_ranks[row]),
                _top(outputs, row, int(slots.prompt_logprobs[slot])),
            )
            for row in range(first, first + count)
        ]
        if entries:
            told.append((int(seating.place[which]), tuple(entries)))
    return tuple(told)


def _top(outputs: Outputs, row: int, count: int) -> tuple[tuple[int, float], ...]:
    ids = outputs.top_ids[row, :count].tolist()
    values = outputs.top_logprobs[row, :count].tolist()
    return tuple(zip(ids, values, strict=True))
