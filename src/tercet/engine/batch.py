"""From a plan and the slots to a device's `Batch`, by a fixed number of array operations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, I32, I64, Batch, MadeUp, Sampling
from tercet.engine.slots import Flags, Slots
from tercet.messages.plan import StepPlan

_NO_IDS: I32 = np.zeros(0, np.int32)
_NO_VALUES: F32 = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Who sits where in a step: P planned slots, S of them computed, R logits rows, D drawn."""

    planned: I64
    """[P] slots in the plan's order."""
    place: I64
    """[S] index into `planned` of each computed sequence."""
    slots: I64
    """[S]"""
    rows: I64
    """[S] rows of each."""
    drawn: I64
    """[D] which of the S draw a token."""
    drawn_rows: I64
    """[D] which of the R rows it is drawn from."""
    scored: tuple[tuple[int, int, int], ...] = ()
    """(which of the S, first of its R rows, how many): rows that score prompt tokens."""


def seat(slots: Slots, plan: StepPlan) -> Seating:
    """Read the plan against the slots; the tables have grown when it returns.

    Slots that ended in the step before are left out. A plan that contradicts the slots breaks
    an invariant.
    """
    planned = _integers(plan.slots)
    rows = _integers(plan.rows)
    growth = _integers(plan.growth)
    samples = np.frombuffer(plan.samples, np.uint8)
    must(
        len(planned) == len(rows) == len(growth) == len(samples),
        f"step {plan.step}: arrays of different lengths",
    )
    if len(planned):
        _check_slots(slots, planned, plan.step)
    slots.grow(planned, growth, _integers(plan.blocks))
    place = np.flatnonzero(~slots.ended[planned])
    seated = planned[place]
    counts = rows[place]
    open_rows = slots.known[seated] - slots.computed[seated]
    wrong = np.flatnonzero((counts < 1) | (counts > open_rows))
    if len(wrong):
        slot = seated[wrong[0]]
        must(False, f"step {plan.step}: {counts[wrong[0]]} rows of slot {slot}, which has "
                    f"{open_rows[wrong[0]]} uncomputed tokens")  # fmt: skip
    draws = samples[place] != 0
    wrong = np.flatnonzero(draws & (counts != open_rows))
    if len(wrong):
        must(False, f"step {plan.step}: slot {seated[wrong[0]]} draws before its last token")
    drawn = np.flatnonzero(draws)
    drawn_rows, scored = _logits_rows(slots, seated, counts, draws)
    return Seating(
        planned=planned,
        place=place,
        slots=seated,
        rows=counts,
        drawn=drawn,
        drawn_rows=drawn_rows,
        scored=scored,
    )


def build(slots: Slots, seating: Seating) -> Batch:
    """The batch of a seating with at least one sequence."""
    seated, counts = seating.slots, seating.rows
    ends = np.cumsum(counts)
    start = slots.computed[seated]
    owner = np.repeat(seated, counts)
    positions = np.arange(int(ends[-1])) - np.repeat(ends - counts - start, counts)
    contexts = start + counts
    num_blocks = (contexts + (BLOCK_TOKENS - 1)) // BLOCK_TOKENS
    short = np.flatnonzero(slots.table_length[seated] < num_blocks)
    if len(short):
        slot = seated[short[0]]
        must(False, f"slot {slot}: {slots.table_length[slot]} blocks for a context of "
                    f"{contexts[short[0]]} tokens")  # fmt: skip
    table_ends = np.cumsum(num_blocks)
    block = np.arange(int(table_ends[-1])) - np.repeat(table_ends - num_blocks, num_blocks)
    wanted, asking, scored_ids, scores = _wanted(slots, seating, ends)
    return Batch(
        ids=slots.tokens[owner, positions],
        positions=positions.astype(np.int32),
        row_ends=ends.astype(np.int32),
        contexts=contexts.astype(np.int32),
        tables=slots.table[np.repeat(seated, num_blocks), block],
        table_ends=table_ends.astype(np.int32),
        logits_rows=wanted.astype(np.int32),
        sampling=_sampling(slots, asking, scores),
        scored_ids=scored_ids,
        made_up=MadeUp(
            vocab=slots.vocab, end_ids=slots.end_ids, end_position=slots.end_position[asking]
        ),
    )


def _integers(data: bytes) -> I64:
    return np.frombuffer(data, "<i4").astype(np.int64)


def _check_slots(slots: Slots, planned: I64, step: int) -> None:
    must(
        int(planned.min()) >= 0 and int(planned.max()) < slots.max_slots,
        f"step {step}: a slot outside 0..{slots.max_slots - 1}",
    )
    closed = np.flatnonzero(~slots.opened[planned])
    if len(closed):
        must(False, f"step {step}: slot {planned[closed[0]]} is not open")
    must(
        int(np.bincount(planned).max()) == 1,
        f"step {step}: a slot is planned twice",
    )


def _logits_rows(
    slots: Slots, seated: I64, counts: I64, draws: Flags
) -> tuple[I64, tuple[tuple[int, int, int], ...]]:
    """Index among the R rows of each drawn row, and the ranges of rows that score the prompt."""
    last = slots.prompt[seated] - 1
    start = slots.computed[seated]
    scoring = (slots.prompt_logprobs[seated] >= 0) & (start < last)
    if not scoring.any():
        return np.arange(int(np.count_nonzero(draws))), ()
    # A prompt's row at p scores the token at p + 1; the row of its last token scores nothing.
    num_scored = np.where(scoring, np.minimum(start + counts, last) - start, 0)
    num_rows = num_scored + draws
    first = np.cumsum(num_rows) - num_rows
    scored = tuple(
        (int(which), int(first[which]), int(num_scored[which])) for which in np.flatnonzero(scoring)
    )
    drawn = np.flatnonzero(draws)
    return first[drawn] + num_scored[drawn], scored


def _wanted(slots: Slots, seating: Seating, ends: I64) -> tuple[I64, I64, I32, Flags | None]:
    """[R] rows of the step, their slots, the ids that they score, whether they only score."""
    last_rows = ends[seating.drawn] - 1
    if not seating.scored:
        owners = seating.slots[seating.drawn]
        return last_rows, owners, np.full(len(owners), -1, np.int32), None
    num_rows = len(seating.drawn) + sum(count for _, _, count in seating.scored)
    wanted, owners = np.zeros((2, num_rows), np.int64)
    scored_ids = np.full(num_rows, -1, np.int32)
    scores = np.zeros(num_rows, bool)
    wanted[seating.drawn_rows] = last_rows
    owners[seating.drawn_rows] = seating.slots[seating.drawn]
    for which, first, count in seating.scored:
        slot = seating.slots[which]
        start = slots.computed[slot]
        part = slice(first, first + count)
        begin = ends[which] - seating.rows[which]
        wanted[part] = np.arange(begin, begin + count)
        owners[part] = slot
        scored_ids[part] = slots.tokens[slot, start + 1 : start + 1 + count]
        scores[part] = True
    return wanted, owners, scored_ids, scores


def _sampling(slots: Slots, owners: I64, scores: Flags | None) -> Sampling:
    temperature, num_logprobs = slots.temperature[owners], slots.num_logprobs[owners]
    drawn: Sequence[int] = range(len(owners))
    if scores is not None:
        temperature[scores] = 0.0
        num_logprobs[scores] = slots.prompt_logprobs[owners[scores]]
        drawn = np.flatnonzero(~scores).tolist()
    history = _history(slots, owners, drawn)
    bias = _bias(slots, owners, drawn)
    return Sampling(
        temperature=temperature,
        top_k=slots.top_k[owners],
        top_p=slots.top_p[owners],
        min_p=slots.min_p[owners],
        seed=slots.seed[owners],
        choice=slots.choice[owners],
        position=slots.known[owners].astype(np.int32),
        repetition=slots.repetition[owners],
        presence=slots.presence[owners],
        frequency=slots.frequency[owners],
        history_ids=history[0],
        history_counts=history[1],
        history_ends=history[2],
        bias_ids=bias[0],
        bias_values=bias[1],
        bias_ends=bias[2],
        num_logprobs=num_logprobs,
    )


def _history(slots: Slots, owners: I64, drawn: Sequence[int]) -> tuple[I32, I32, I32]:
    lengths = np.zeros(len(owners), np.int32)
    if not slots.counts:
        return _NO_IDS, _NO_IDS, lengths
    ids, counts = [_NO_IDS], [_NO_IDS]
    slot_of = owners.tolist()
    for row in drawn:
        held = slots.counts.get(slot_of[row])
        if held is not None:
            ids.append(held.ids)
            counts.append(held.counts)
            lengths[row] = len(held.ids)
    return np.concatenate(ids), np.concatenate(counts), np.cumsum(lengths, dtype=np.int32)


def _bias(slots: Slots, owners: I64, drawn: Sequence[int]) -> tuple[I32, F32, I32]:
    lengths = np.zeros(len(owners), np.int32)
    if not slots.biases and not slots.stop_ids:
        return _NO_IDS, _NO_VALUES, lengths
    ids, values = [_NO_IDS], [_NO_VALUES]
    slot_of = owners.tolist()
    for row in drawn:
        slot = slot_of[row]
        before = len(ids)
        if slot in slots.biases:
            ids.append(slots.biases[slot][0])
            values.append(slots.biases[slot][1])
        if slot in slots.stop_ids and slots.known[slot] < slots.stops_from[slot]:
            banned = slots.stop_ids[slot]
            ids.append(banned)
            values.append(np.full(len(banned), -np.inf, np.float32))
        lengths[row] = sum(len(part) for part in ids[before:])
    return np.concatenate(ids), np.concatenate(values), np.cumsum(lengths, dtype=np.int32)
