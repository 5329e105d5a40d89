"""From a plan and the slots to a device's `Batch`, by a fixed number of array operations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, I32, I64, Batch, MadeUp, Sampling
from tercet.engine.drafts import Drafter, lookup
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
    """[S] rows of each, those of guessed tokens included."""
    drawn: I64
    """[D] which of the S draw a token."""
    drawn_rows: I64
    """[D] which of the R rows it is drawn from; the rows behind guessed tokens follow it."""
    drafts: I64 | None
    """[D] how many guessed tokens are verified; they stand behind the known ones in the slot.
    None: none is, as in most steps."""
    first_guesses: I32 | None
    """[D] the first guessed token, -1 where there is none; None: nobody guessed."""
    scored: tuple[tuple[int, int, int], ...] = ()
    """(which of the S, first of its R rows, how many): rows that score prompt tokens."""

    @property
    def places(self) -> I64:
        """[D] index into `planned`."""
        return self.place[self.drawn]


def seat(slots: Slots, plan: StepPlan, *, drafter: Drafter = lookup) -> Seating:
    """Read the plan against the slots; the tables have grown and guessed tokens stand behind the
    known ones when it returns.

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
    drafts, first_guesses = None, None
    if plan.guesses:
        must(
            len(plan.guesses) == len(planned),
            f"step {plan.step}: {len(plan.guesses)} guesses for {len(planned)} slots",
        )
        wanted = np.frombuffer(plan.guesses, np.uint8)[place[drawn]].tolist()
        drafts, first_guesses = _guess(slots, seated[drawn], wanted, drafter)
    num_drawn = draws.astype(np.int64)
    if drafts is not None:
        num_drawn[drawn] += drafts
    drawn_rows, scored = _logits_rows(slots, seated, counts, num_drawn)
    if drafts is not None:
        counts[drawn] += drafts
    return Seating(
        planned=planned,
        place=place,
        slots=seated,
        rows=counts,
        drawn=drawn,
        drawn_rows=drawn_rows,
        drafts=drafts,
        first_guesses=first_guesses,
        scored=scored,
    )


def without(seating: Seating, dropped: Sequence[int]) -> Seating:
    """The seating as if these slots had not been seated; rows of the device's outputs stay."""
    kept = ~np.isin(seating.slots, dropped)
    number = np.cumsum(kept) - 1
    draws = kept[seating.drawn]
    return Seating(
        planned=seating.planned,
        place=seating.place[kept],
        slots=seating.slots[kept],
        rows=seating.rows[kept],
        drawn=number[seating.drawn[draws]],
        drawn_rows=seating.drawn_rows[draws],
        drafts=None if seating.drafts is None else seating.drafts[draws],
        first_guesses=None if seating.first_guesses is None else seating.first_guesses[draws],
        scored=tuple(
            (int(number[which]), first, count)
            for which, first, count in seating.scored
            if kept[which]
        ),
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
    wanted = _wanted(slots, seating, ends)
    return Batch(
        ids=slots.tokens[owner, positions],
        positions=positions.astype(np.int32),
        row_ends=ends.astype(np.int32),
        contexts=contexts.astype(np.int32),
        tables=slots.table[np.repeat(seated, num_blocks), block],
        table_ends=table_ends.astype(np.int32),
        logits_rows=wanted.rows.astype(np.int32),
        sampling=_sampling(slots, wanted),
        scored_ids=wanted.scored_ids,
        made_up=MadeUp(
            vocab=slots.vocab, end_ids=slots.end_ids, end_position=slots.end_position[wanted.owners]
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


def _guess(
    slots: Slots, owners: I64, wanted: Sequence[int], drafter: Drafter
) -> tuple[I64 | None, I32]:
    """[D] how many guessed tokens stand behind the known ones now (None: none anywhere), [D] the
    first guess or -1.

    A task's last token is never computed and a table ends somewhere: no more are verified.
    """
    drafts = np.zeros(len(owners), np.int64)
    first = np.full(len(owners), -1, np.int32)
    for index, (slot, most) in enumerate(zip(owners.tolist(), wanted, strict=True)):
        if not most:
            continue
        known = int(slots.known[slot])
        room = min(int(slots.limit[slot]) - 1, BLOCK_TOKENS * int(slots.table_length[slot])) - known
        count = max(0, min(most - 1, room))
        guessed = drafter(slots.tokens[slot, :known], max(count, 1))
        if len(guessed):
            first[index] = guessed[0]
            drafts[index] = count = min(count, len(guessed))
            slots.tokens[slot, known : known + count] = guessed[:count]
    return drafts if drafts.any() else None, first


def _logits_rows(
    slots: Slots, seated: I64, counts: I64, num_drawn: I64
) -> tuple[I64, tuple[tuple[int, int, int], ...]]:
    """Index among the R rows of each first drawn row, and the ranges of rows that score the
    prompt; `counts` are rows of known tokens, `num_drawn` [S] rows that draw.
    """
    last = slots.prompt[seated] - 1
    start = slots.computed[seated]
    drawn = np.flatnonzero(num_drawn)
    scoring = (slots.prompt_logprobs[seated] >= 0) & (start < last)
    if not scoring.any():
        return np.cumsum(num_drawn[drawn]) - num_drawn[drawn], ()
    # A prompt's row at p scores the token at p + 1; the row of its last token scores nothing.
    num_scored = np.where(scoring, np.minimum(start + counts, last) - start, 0)
    num_rows = num_scored + num_drawn
    first = np.cumsum(num_rows) - num_rows
    scored = tuple(
        (int(which), int(first[which]), int(num_scored[which])) for which in np.flatnonzero(scoring)
    )
    return first[drawn] + num_scored[drawn], scored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The R rows of a step whose logits are wanted."""

    rows: I64
    """[R] which rows of the step."""
    owners: I64
    """[R] their slots."""
    positions: I64
    """[R] of the token that each draws; where it only scores: any."""
    scored_ids: I32
    """[R] the ids that they score, or -1."""
    scores: Flags | None
    """[R] whether they only score; None: none does."""


def _wanted(slots: Slots, seating: Seating, ends: I64) -> _Wanted:
    owners = seating.slots[seating.drawn]
    rows, positions, places = ends[seating.drawn] - 1, slots.known[owners], seating.drawn_rows
    if seating.drafts is not None:
        counts = 1 + seating.drafts
        which = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(which)) - (np.cumsum(counts) - counts)[which]
        rows = (rows - seating.drafts)[which] + number
        owners, positions = owners[which], positions[which] + number
        places = places[which] + number
    if not seating.scored:
        return _Wanted(
            rows=rows,
            owners=owners,
            positions=positions,
            scored_ids=np.full(len(rows), -1, np.int32),
            scores=None,
        )
    num_rows = len(rows) + sum(count for _, _, count in seating.scored)
    wanted = _Wanted(
        rows=np.zeros(num_rows, np.int64),
        owners=np.zeros(num_rows, np.int64),
        positions=np.zeros(num_rows, np.int64),
        scored_ids=np.full(num_rows, -1, np.int32),
        scores=np.zeros(num_rows, bool),
    )
    wanted.rows[places] = rows
    wanted.owners[places] = owners
    wanted.positions[places] = positions
    for seat_, first, count in seating.scored:
        slot = seating.slots[seat_]
        start = slots.computed[slot]
        part = slice(first, first + count)
        begin = ends[seat_] - seating.rows[seat_]
        wanted.rows[part] = np.arange(begin, begin + count)
        wanted.owners[part] = slot
        wanted.scored_ids[part] = slots.tokens[slot, start + 1 : start + 1 + count]
        if wanted.scores is not None:
            wanted.scores[part] = True
    return wanted


def _sampling(slots: Slots, wanted: _Wanted) -> Sampling:
    owners, scores = wanted.owners, wanted.scores
    temperature, num_logprobs = slots.temperature[owners], slots.num_logprobs[owners]
    drawn: Sequence[int] = range(len(owners))
    if scores is not None:
        temperature[scores] = 0.0
        num_logprobs[scores] = slots.prompt_logprobs[owners[scores]]
        drawn = np.flatnonzero(~scores).tolist()
    history = _history(slots, wanted, drawn)
    bias = _bias(slots, wanted, drawn)
    return Sampling(
        temperature=temperature,
        top_k=slots.top_k[owners],
        top_p=slots.top_p[owners],
        min_p=slots.min_p[owners],
        seed=slots.seed[owners],
        choice=slots.choice[owners],
        position=wanted.positions.astype(np.int32),
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


def _history(slots: Slots, wanted: _Wanted, drawn: Sequence[int]) -> tuple[I32, I32, I32]:
    """As each row finds it: behind guessed tokens they count as if they were output."""
    lengths = np.zeros(len(wanted.owners), np.int32)
    if not slots.counts:
        return _NO_IDS, _NO_IDS, lengths
    ids, counts = [_NO_IDS], [_NO_IDS]
    slot_of, position_of = wanted.owners.tolist(), wanted.positions.tolist()
    for row in drawn:
        slot = slot_of[row]
        held = slots.counts.get(slot)
        if held is not None:
            row_ids, row_counts = held.followed_by(
                slots.tokens[slot, slots.known[slot] : position_of[row]].tolist()
            )
            ids.append(row_ids)
            counts.append(row_counts)
            lengths[row] = len(row_ids)
    return np.concatenate(ids), np.concatenate(counts), np.cumsum(lengths, dtype=np.int32)


def _bias(slots: Slots, wanted: _Wanted, drawn: Sequence[int]) -> tuple[I32, F32, I32]:
    lengths = np.zeros(len(wanted.owners), np.int32)
    if not slots.biases and not slots.stop_ids:
        return _NO_IDS, _NO_VALUES, lengths
    ids, values = [_NO_IDS], [_NO_VALUES]
    slot_of, position_of = wanted.owners.tolist(), wanted.positions.tolist()
    for row in drawn:
        slot = slot_of[row]
        before = len(ids)
        if slot in slots.biases:
            ids.append(slots.biases[slot][0])
            values.append(slots.biases[slot][1])
        if slot in slots.stop_ids and position_of[row] < slots.stops_from[slot]:
            banned = slots.stop_ids[slot]
            ids.append(banned)
            values.append(np.full(len(banned), -np.inf, np.float32))
        lengths[row] = sum(len(part) for part in ids[before:])
    return np.concatenate(ids), np.concatenate(values), np.cumsum(lengths, dtype=np.int32)
