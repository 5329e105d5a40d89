"""From a device's `Outputs` to what happened: the slots move on, a `StepResult` tells of it."""

import numpy as np
from msgspec import structs

from tercet.base.errors import must
from tercet.devices.contract import I32, I64, Outputs
from tercet.engine.batch import Seating
from tercet.engine.slots import Flags, Slots
from tercet.jobs.job import TokenLogprobs
from tercet.messages.plan import (
    FINISH_LENGTH,
    FINISH_STOP,
    GUESS_NONE,
    GUESS_RIGHT,
    GUESS_WRONG,
    StepResult,
)


def settle(slots: Slots, seating: Seating, outputs: Outputs, *, step: int) -> StepResult:
    """Move the slots on by what the step computed and drew, and report it in the plan's order.

    Of a slot's rows that draw, the first is always true. Each further one is if the token before
    it was guessed right: then it computed what a step of its own would have.

        guessed        5    9    2           the slot's tokens behind the known ones
        drawn     5    9    4    7           gained: 5 9 4; 7 followed a wrong guess
    """
    computed_before = slots.computed[seating.slots]
    slots.computed[seating.slots] = computed_before + seating.rows
    owners = seating.slots[seating.drawn]
    drawn = _drawn(seating, outputs)
    must(
        drawn.min(initial=0) >= 0 and drawn.max(initial=0) < slots.vocab,
        f"step {step}: the device drew a token outside the vocabulary of {slots.vocab}",
    )
    if seating.drafts is None:
        gained = np.ones(len(owners), np.int64)
        finishes = _advance(slots, owners, drawn)
        tokens = drawn
    else:
        gained, finishes = _advance_far(slots, owners, drawn, drafts=seating.drafts)
        slots.computed[owners] += gained - 1 - seating.drafts
        tokens = drawn[np.arange(drawn.shape[1]) < gained[:, None]]
    drafted, guessed = _guesses(seating, outputs)
    return StepResult(
        step=step,
        counts=_placed(gained, seating, "<i4"),
        tokens=tokens.astype("<i4", copy=False).tobytes(),
        finishes=_placed(finishes, seating, "u1"),
        computed=slots.computed[seating.planned].astype("<i4").tobytes(),
        logprobs=_logprobs(slots, seating, outputs, gained),
        prompt_logprobs=_prompt_logprobs(slots, seating, outputs, computed_before),
        drafted=drafted,
        guessed=guessed,
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


def with_stale(result: StepResult, planned: list[int], stale: list[int]) -> StepResult:
    """The result that also says of which slots the borrowed blocks were others."""
    if not stale:
        return result
    places = [place for place, slot in enumerate(planned) if slot in stale]
    return structs.replace(result, stale=np.array(places, "<i4").tobytes())


def _placed(values: I64, seating: Seating, dtype: str) -> bytes:
    """[P] the values [D] at their places in the plan, 0 elsewhere."""
    planned = np.zeros(len(seating.planned), dtype)
    planned[seating.places] = values
    return planned.tobytes()


def _drawn(seating: Seating, outputs: Outputs) -> I32:
    """[D] the token that each slot drew; with drafts [D, W], W rows the most of one, and the last
    token of those with fewer is repeated.
    """
    if seating.drafts is None:
        return outputs.tokens[seating.drawn_rows]
    numbers = np.arange(1 + int(seating.drafts.max()))
    return outputs.tokens[
        seating.drawn_rows[:, None] + np.minimum(numbers, seating.drafts[:, None])
    ]


def _guesses(seating: Seating, outputs: Outputs) -> tuple[bytes, bytes]:
    """What a result says of guessed tokens: (drafted, guessed)."""
    first = seating.first_guesses
    if first is None or not (first >= 0).any():
        return b"", b""
    drawn = outputs.tokens[seating.drawn_rows]
    outcome = np.where(first == drawn, GUESS_RIGHT, GUESS_WRONG)
    guessed = _placed(np.where(first >= 0, outcome, GUESS_NONE), seating, "u1")
    return b"" if seating.drafts is None else _placed(seating.drafts, seating, "u1"), guessed


def _advance(slots: Slots, owners: I64, tokens: I32) -> I64:
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
    return _end(slots, owners, stopped)


def _end(slots: Slots, owners: I64, stopped: Flags) -> I64:
    """[D] FINISH_* of tasks that drew a stop or may be at their limit."""
    finishes = np.where(
        stopped,
        np.int64(FINISH_STOP),
        np.where(slots.known[owners] >= slots.limit[owners], np.int64(FINISH_LENGTH), np.int64(0)),
    )
    slots.ended[owners] = finishes != 0
    return finishes


def _advance_far(slots: Slots, owners: I64, tokens: I32, *, drafts: I64) -> tuple[I64, I64]:
    """Append each owner's true tokens, at most up to a stop; ([D] how many, [D] FINISH_*)."""
    known = slots.known[owners]
    numbers = np.arange(tokens.shape[1])
    places = known[:, None] + numbers
    gained = 1 + _num_right(slots, owners, tokens, drafts=drafts)
    stopped = (slots.stops[owners][:, None, :] == tokens[:, :, None]).any(axis=2)
    for index, slot in enumerate(owners.tolist() if slots.stop_sets else ()):
        if slot in slots.stop_sets:
            stops = slots.stop_sets[slot]
            stopped[index] = [token in stops for token in tokens[index].tolist()]
    stopped &= (places >= slots.stops_from[owners, None]) & (numbers < gained[:, None])
    ends = stopped.any(axis=1)
    gained = np.where(ends, 1 + stopped.argmax(axis=1), gained)
    true = numbers < gained[:, None]
    slots.tokens[np.repeat(owners, gained), places[true]] = tokens[true]
    for index, slot in enumerate(owners.tolist() if slots.counts else ()):
        if slot in slots.counts:
            for token in tokens[index, : gained[index]].tolist():
                slots.counts[slot].add(token)
    slots.known[owners] = known + gained
    return gained, _end(slots, owners, ends)


def _num_right(slots: Slots, owners: I64, tokens: I32, *, drafts: I64) -> I64:
    """[D] how many of the guessed tokens, from the first, are what was drawn in their place."""
    numbers = np.arange(tokens.shape[1] - 1)
    places = np.minimum(slots.known[owners, None] + numbers, slots.context_max - 1)
    right = (slots.tokens[owners[:, None], places] == tokens[:, :-1]) & (numbers < drafts[:, None])
    num_right: I64 = np.logical_and.accumulate(right, axis=1).sum(axis=1)
    return num_right


def _logprobs(
    slots: Slots, seating: Seating, outputs: Outputs, gained: I64
) -> tuple[tuple[int, tuple[TokenLogprobs, ...]], ...]:
    wanted = slots.num_logprobs[seating.slots[seating.drawn]]
    told = []
    for index in np.flatnonzero(wanted >= 0).tolist():
        first = int(seating.drawn_rows[index])
        entries = tuple(
            TokenLogprobs(
                int(outputs.tokens[row]),
                float(outputs.logprobs[row]),
                int(outputs.ranks[row]),
                _top(outputs, row, int(wanted[index])),
            )
            for row in range(first, first + int(gained[index]))
        )
        told.append((int(seating.place[seating.drawn[index]]), entries))
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
