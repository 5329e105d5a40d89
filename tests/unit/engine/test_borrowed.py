"""Blocks of others in a slot's table: what was computed from others than were lent is nothing."""

import os

import numpy as np
import pytest
from engine_cases import VOCAB, engine_of, i4, ints, opening, plan_of, shape_of, task_of

from tercet.base.errors import InvariantBroken
from tercet.engine.echo import EchoExecutable
from tercet.engine.engine import Engine
from tercet.engine.memory import AddressRange, arena_layout, block_bytes, make_arena
from tercet.messages.plan import SlotOpening

PROMPT = tuple(range(5, 45))
"""Two full blocks and a half."""
LIVES = np.array([7, 9], np.uint32)
NUM_BLOCKS = 40


class Touching(EchoExecutable):
    """Lets something happen to others' memory in the middle of a step."""

    happens = staticmethod(lambda: None)

    def run(self, batch):
        outputs = super().run(batch)
        self.happens()
        return outputs


def arena(memory, place, *, writable):
    descriptor = make_arena("test", memory.layout)
    memory.map_arena(place, descriptor, writable=writable)
    os.close(descriptor)


@pytest.fixture
def borrowing():
    """An engine over its own arena and, at place 2, one whose blocks 3 and 1 hold the prompt."""
    executable = Touching(vocab=VOCAB)
    layout = arena_layout(block_bytes(executable.block_shape), NUM_BLOCKS)
    memory = AddressRange.reserve(layout, block_shape=executable.block_shape, num_arenas=3)
    arena(memory, 0, writable=True)
    arena(memory, 2, writable=True)
    theirs = 2 * layout.blocks_per_arena
    memory.blocks[[theirs + 3, theirs + 1]] = np.array(PROMPT[:32], np.float32).reshape(2, 16)
    memory.generations(2)[[3, 1]] = LIVES
    memory._writable[2] = False  # only the tests themselves write there
    executable.bind(memory)
    engine = Engine(executable, shape=shape_of(), memory=memory, max_slots=8, clock=lambda: 0)
    yield engine, memory
    memory.close()


def borrowed_opening(memory, slot=0, first_own=0):
    theirs = 2 * memory.layout.blocks_per_arena
    own = range(first_own, first_own + 4)
    return SlotOpening(
        slot=slot,
        task=task_of(PROMPT),
        computed=32,
        blocks=i4([theirs + 3, theirs + 1, *own]),
        borrowed_at=0,
        lives=LIVES.astype("<u4").tobytes(),
    )


def alone():
    """What the prompt gives in one's own blocks."""
    engine = engine_of()
    first = engine.run(plan_of(1, {0: (40, True)}, opens=[opening(0, task_of(PROMPT))]))
    return ints(first.tokens) + ints(engine.run(plan_of(2, {0: (1, True)})).tokens)


def test_blocks_of_others_give_the_tokens_of_ones_own(borrowing):
    engine, memory = borrowing
    first = engine.run(plan_of(1, {0: (8, True)}, opens=[borrowed_opening(memory)]))
    second = engine.run(plan_of(2, {0: (1, True)}))
    assert ints(first.tokens) + ints(second.tokens) == alone()
    assert first.stale == second.stale == b""


def test_a_life_that_ended_before_the_step_ends_the_slot_alone(borrowing):
    engine, memory = borrowing
    opens = [borrowed_opening(memory), opening(1, task_of(PROMPT), blocks=range(8, 12))]
    engine.run(plan_of(1, {0: (8, True), 1: (40, True)}, opens=opens))
    memory.generations(2)[1] += np.uint32(1)
    result = engine.run(plan_of(2, {1: (1, True), 0: (1, True)}))
    assert ints(result.stale) == [1]
    assert ints(result.counts) == [1, 0]
    assert ints(result.computed) == [41, 40]
    assert ints(result.tokens) == alone()[1:]


def test_a_life_that_ends_within_the_step_takes_its_token_back(borrowing):
    engine, memory = borrowing
    opens = [borrowed_opening(memory), opening(1, task_of(PROMPT), blocks=range(8, 12))]

    def evict():
        memory.generations(2)[3] ^= np.uint32(1 << 31)

    engine.executable.happens = evict
    result = engine.run(plan_of(1, {0: (8, True), 1: (40, True)}, opens=opens))
    assert ints(result.stale) == [0]
    assert ints(result.counts) == [0, 1]
    assert ints(result.computed) == [32, 40]
    assert ints(result.tokens) == alone()[:1]
    engine.executable.happens = lambda: None
    again = engine.run(
        plan_of(2, {0: (40, True)}, closes=[0],
                opens=[opening(0, task_of(PROMPT), blocks=range(16, 20))])
    )  # fmt: skip
    assert ints(again.tokens) == alone()[:1]
    assert again.stale == b""


def test_a_closed_slot_is_looked_at_no_more(borrowing):
    engine, memory = borrowing
    engine.run(plan_of(1, {0: (8, True)}, opens=[borrowed_opening(memory)]))
    engine.run(plan_of(2, {}, closes=[0]))
    memory.unmap_arena(2)  # reading there would fault
    opens = [opening(0, task_of(PROMPT), blocks=range(8, 12))]
    assert ints(engine.run(plan_of(3, {0: (40, True)}, opens=opens)).tokens) == alone()[:1]


def test_lives_of_blocks_that_are_not_there_break_an_invariant(borrowing):
    engine, _ = borrowing
    wrong = SlotOpening(slot=0, task=task_of(PROMPT), computed=16, blocks=i4([0]), lives=bytes(8))
    with pytest.raises(InvariantBroken, match="lives of 1 blocks"):
        engine.run(plan_of(1, {0: (24, True)}, opens=[wrong]))


def test_the_clock_tells_the_step(borrowing):
    engine, memory = borrowing
    seen = []
    engine.executable.happens = lambda: seen.append(int(memory.clock()[0]))
    engine.run(plan_of(5, {0: (8, True)}, opens=[borrowed_opening(memory)]))
    assert seen == [5 << 16]
    assert int(memory.clock()[0]) == 6 << 16
