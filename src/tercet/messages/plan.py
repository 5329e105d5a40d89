"""One engine step: what to compute (`StepPlan`) and what came out (`StepResult`).

Counts ahead, values late: a plan is made while the step before it still runs, so it names slots,
upper bounds and blocks, never token values. True lengths and values live in the slots beside the
device. Arrays are little-endian `bytes` (i4 unless noted), one entry for each planned slot unless
noted, so that ranks can read a plan from shared memory and a recording can hold it as it is.

    slots     [ 4 | 0 | 7 ]        who
    rows      [ 1 | 1 | 512 ]      at most so many known, uncomputed tokens
    samples   [ 1 | 1 | 0 ]        whether the chunk ends at the last known token: sample there (u1)
    growth    [ 0 | 1 | 32 ]       how many of `blocks` are appended to this slot's table
    blocks    [ 91 | 17 ... 48 ]   sum(growth) block ids, over all mapped arenas
    guesses   [ 5 | 1 | 0 ]        how many of its next tokens are guessed, plus one (u1; 0: nobody
                                   looks; 1: one token, only to see whether it would have been
                                   right; 1 + k: at most k, each verified by a row of its own)
    begins    [ 3 | 1 | 7 ... 7 ]  the life (u4) that each fresh block begins: of the opens in turn
                                   those behind `computed`, then `blocks`. The engine stores it in
                                   the arena's directory before it writes there (cache/blocks.py)
"""

from msgspec import Struct

from tercet.jobs.job import Task, TokenLogprobs

FINISH_NONE = 0
FINISH_STOP = 1
FINISH_LENGTH = 2

GUESS_NONE = 0
GUESS_WRONG = 1
GUESS_RIGHT = 2

GUESSES_MAX = 64
"""Guessed tokens of a slot in one step."""


class SlotOpening(Struct, frozen=True, kw_only=True):
    """Give a slot to a task. `computed` leading tokens are already in the first blocks of its
    table (a cache hit); `blocks` is the table so far, i4.
    """

    slot: int
    task: Task
    computed: int = 0
    blocks: bytes = b""
    borrowed_at: int = 0
    lives: bytes = b""
    """u4: the blocks from place `borrowed_at` on, as many as there are entries here, are another
    executor's, in these generations: checked before and after every step that reads them."""


class StepPlan(Struct, frozen=True, kw_only=True):
    """What one step computes. `closes` are carried out first, then `opens`, then the rows.

    A slot that ended in the step before (the plan could not know) is dropped by the engine:
    count 0, no row computed. A closed slot's blocks are not touched by this or any later plan.

    Guessed tokens are computed behind the known ones. Row by row the sampler draws what it would
    draw without them; as long as that is what was guessed, the next row holds too. So one step
    gives 1 to 1 + k tokens, the same ones that single steps give.
    """

    step: int
    closes: tuple[int, ...] = ()
    opens: tuple[SlotOpening, ...] = ()
    slots: bytes = b""
    rows: bytes = b""
    samples: bytes = b""
    growth: bytes = b""
    blocks: bytes = b""
    guesses: bytes = b""
    """Empty: nobody guesses."""
    begins: bytes = b""
    """Empty: nobody is ever lent these blocks, their lives need no number (tests, benches)."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What one step really did, for each planned slot in the plan's order."""

    step: int
    counts: bytes = b""
    """i4: tokens that the slot gained (0 where nothing was sampled or the slot was dropped)."""
    tokens: bytes = b""
    """i4: the gained tokens, sum(counts) of them."""
    finishes: bytes = b""
    """u1: FINISH_*; the finishing stop token is the last gained one."""
    computed: bytes = b""
    """i4: tokens of the slot whose KV is now in its blocks."""
    logprobs: tuple[tuple[int, tuple[TokenLogprobs, ...]], ...] = ()
    """(position in the plan, one entry for each gained token), for slots that asked."""
    prompt_logprobs: tuple[tuple[int, tuple[TokenLogprobs | None, ...]], ...] = ()
    """(position in the plan, entries of the prompt's rows of this step); the very first is None."""
    drafted: bytes = b""
    """u1: rows that verified guessed tokens, besides the planned ones; empty: there were none."""
    guessed: bytes = b""
    """u1: GUESS_*, of the first guessed token, whether a row verified it or not; empty: nobody
    guessed."""
    stale: bytes = b""
    """i4: positions in the plan whose borrowed blocks were no longer what they were lent as. They
    gained nothing and computed nothing; empty: none."""
    duration_ns: int = 0


class StepCost(Struct, frozen=True, kw_only=True):
    """Linear coefficients of a step's duration; the engine measures them at start.

    duration = base + rows x per_row + logits rows x per_logit + attended pairs x per_pair
    (a pair is one query row looking at one context token).
    """

    base_ns: float
    per_row_ns: float
    per_logit_ns: float
    per_pair_ns: float

    def predict_ns(self, *, rows: int, logits: int, pairs: int) -> int:
        return int(
            self.base_ns
            + rows * self.per_row_ns
            + logits * self.per_logit_ns
            + pairs * self.per_pair_ns
        )
