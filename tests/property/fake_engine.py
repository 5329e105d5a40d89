"""An engine that computes nothing: it carries out plans to the letter and objects to bad ones.

Its "KV" is a note, per block and place, of which tokens lie before it; a slot whose blocks hold
other notes than its own tokens is caught, and a token depends on the whole text before it alone.

Guesses are right as often as a hash of the text says; a wrong one leaves a foreign note behind.
"""

import struct
from array import array
from dataclasses import dataclass, field
from hashlib import blake2b

from tercet.jobs.job import Task
from tercet.messages.plan import (
    FINISH_LENGTH,
    FINISH_NONE,
    FINISH_STOP,
    GUESS_NONE,
    GUESS_RIGHT,
    GUESS_WRONG,
    SlotOpening,
    StepPlan,
    StepResult,
)

BLOCK = 16


def next_token(tokens, *, vocab=1000):
    digest = blake2b(array("i", tokens).tobytes(), digest_size=8).digest()
    return struct.unpack("<Q", digest)[0] % vocab


def expected(task: Task, *, context_max, end_id=None):
    """All tokens that a task must generate, after those that it was given."""
    tokens = list(task.prompt + task.generated)
    limit = min(len(task.prompt) + task.sampling.max_tokens, context_max)
    start = len(tokens)
    while len(tokens) < limit:
        tokens.append(next_token(tokens))
        if tokens[-1] == end_id:
            break
    return tokens[start:]


@dataclass
class Slot:
    task: Task
    tokens: list[int]
    computed: int
    table: list[int]
    ended: bool = False


@dataclass
class FakeEngine:
    context_max: int
    num_blocks: int
    end_id: int | None = None
    notes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    slots: dict[int, Slot] = field(default_factory=dict)
    steps: int = 0
    max_rows_seen: int = 0
    always_right: bool = False
    """Everything that may be guessed is, and rightly."""
    num_drafted: int = 0
    num_accepted: int = 0

    def run(self, plan: StepPlan) -> StepResult:
        self.steps += 1
        assert plan.step == self.steps, "steps come in order, without gaps"
        for slot in plan.closes:
            del self.slots[slot]
        for opening in plan.opens:
            self._open(opening)
        slots, rows = _i4(plan.slots), _i4(plan.rows)
        growth, blocks = _i4(plan.growth), list(_i4(plan.blocks))
        assert len(slots) == len(rows) == len(growth) == len(plan.samples)
        assert len(set(slots)) == len(slots), "a slot stands in a plan once"
        assert sum(growth) == len(blocks)
        guesses = plan.guesses or bytes(len(slots))
        num_guesses = sum(guess - 1 for guess in guesses if guess)
        self.max_rows_seen = max(self.max_rows_seen, sum(rows) + num_guesses)
        counts, tokens, finishes, computed, drafted, guessed = [], [], [], [], [], []
        parts = zip(slots, rows, plan.samples, growth, guesses, strict=True)
        for number, count, samples, grows, guess in parts:
            slot = self.slots[number]
            slot.table += blocks[:grows]
            blocks = blocks[grows:]
            assert samples or not guess, "guesses behind tokens that are not the last"
            num_drafts, told = self._guess(slot, guess)
            gained, finish = self._compute(slot, count, bool(samples), num_drafts)
            drafted.append(num_drafts)
            guessed.append(told if not num_drafts else GUESS_RIGHT - (len(gained) < 2))
            counts.append(len(gained))
            tokens += gained
            finishes.append(finish)
            computed.append(slot.computed)
        return StepResult(
            step=plan.step,
            counts=array("i", counts).tobytes(),
            tokens=array("i", tokens).tobytes(),
            finishes=bytes(finishes),
            computed=array("i", computed).tobytes(),
            drafted=bytes(drafted) if any(drafted) else b"",
            guessed=bytes(guessed) if any(guessed) else b"",
        )

    def _open(self, opening: SlotOpening) -> None:
        assert opening.slot not in self.slots, "a slot is opened twice"
        task = opening.task
        table = list(_i4(opening.blocks))
        tokens = list(task.prompt + task.generated)
        assert 0 <= opening.computed < len(tokens)
        self._check_ids(table)
        slot = Slot(task, tokens, opening.computed, table)
        for at in range(opening.computed):
            self._verify(slot, at)
        self.slots[opening.slot] = slot

    def _check_ids(self, table: list[int]) -> None:
        assert all(0 <= block < self.num_blocks for block in table)

    def _verify(self, slot: Slot, at: int) -> None:
        note = self.notes.get((slot.table[at // BLOCK], at % BLOCK))
        assert note == tuple(slot.tokens[: at + 1]), f"foreign KV at {at} of {slot.task.id}"

    def _limit(self, slot: Slot) -> int:
        return min(len(slot.task.prompt) + slot.task.sampling.max_tokens, self.context_max)

    def _guess(self, slot: Slot, guess: int) -> tuple[int, int]:
        """How many guesses are verified, and what is told where none is."""
        if slot.ended or not guess:
            return 0, GUESS_NONE
        most = min(guess - 1, self._limit(slot) - len(slot.tokens) - 1)
        assert len(slot.tokens) + most <= BLOCK * len(slot.table), "guesses beyond the table"
        if self.always_right:
            return max(most, 0), GUESS_RIGHT
        chance = next_token(slot.tokens, vocab=1 << 20)
        told = (GUESS_NONE, GUESS_WRONG, GUESS_RIGHT, GUESS_RIGHT)[chance % 4]
        return (chance >> 2) % (most + 1) if most > 0 else 0, told

    def _compute(
        self, slot: Slot, count: int, samples: bool, num_drafts: int
    ) -> tuple[list[int], int]:
        if slot.ended:
            return [], FINISH_NONE
        end = slot.computed + count
        assert 1 <= count <= len(slot.tokens) - slot.computed, "rows beyond the known tokens"
        assert samples == (end == len(slot.tokens)) or (slot.task.id < 0 and not samples)
        assert end <= BLOCK * len(slot.table), "rows beyond the table"
        for at in range(slot.computed, end):
            self.notes[slot.table[at // BLOCK], at % BLOCK] = tuple(slot.tokens[: at + 1])
        for at in range(end):
            self._verify(slot, at)
        slot.computed = end
        if not samples:
            return [], FINISH_NONE
        for at in range(end, end + num_drafts):
            self.notes[slot.table[at // BLOCK], at % BLOCK] = (-1,)
        chance = next_token(slot.tokens, vocab=1 << 30)
        num_right = num_drafts if self.always_right else chance % (num_drafts + 1)
        self.num_drafted += num_drafts
        gained, finish = [], FINISH_NONE
        while finish == FINISH_NONE and len(gained) <= num_right:
            if gained:
                at = len(slot.tokens) - 1
                self.notes[slot.table[at // BLOCK], at % BLOCK] = tuple(slot.tokens)
                slot.computed += 1
                self.num_accepted += 1
            gained.append(next_token(slot.tokens))
            slot.tokens.append(gained[-1])
            if gained[-1] == self.end_id:
                finish = FINISH_STOP
            elif len(slot.tokens) >= self._limit(slot):
                finish = FINISH_LENGTH
        slot.ended = finish != FINISH_NONE
        return gained, finish


def _i4(data: bytes) -> "array[int]":
    values = array("i")
    values.frombytes(data)
    return values
