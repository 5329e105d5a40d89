"""Whatever a planner does (chunks, company, overrun, preemption, cache hits, guesses), a task's
tokens are those that it gives alone.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "engine"))

from engine_cases import (
    complete,
    engine_of,
    i4,
    ints,
    task_of,
)

from tercet.base.ids import BLOCK_TOKENS
from tercet.messages.plan import SlotOpening, StepPlan

KINDS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.8, "repetition_penalty": 1.2},
    {"temperature": 0.9, "top_k": 9, "frequency_penalty": 0.7, "min_tokens": 4},
    {"temperature": 0.0, "presence_penalty": 1.0, "logit_bias": ((3, 5.0),), "min_tokens": 2},
]
PROMPTS = [tuple((11 * i + n * i * i) % 97 for i in range(3 + 13 * n)) for n in range(len(KINDS))]
TASKS = [
    task_of(prompt, max_tokens=14, seed=n, **kind)
    for n, (prompt, kind) in enumerate(zip(PROMPTS, KINDS, strict=True))
]
EXPECTED = [complete(engine_of(), task) for task in TASKS]
TEXTS = [[*prompt, *tokens] for prompt, (tokens, _) in zip(PROMPTS, EXPECTED, strict=True)]


def know_it_nearly(tokens, count):
    """Guess what a task will say, with a mistake now and then."""
    known = len(tokens)
    text = next(text for text in TEXTS if text[:known] == tokens.tolist())
    return np.array([t + (t % 7 == 0) for t in text[known : known + count]], np.int32)


class Running:
    """What a planner knows of a task in a slot."""

    def __init__(self, index, got):
        self.index, self.got = index, got
        self.computed = 0
        self.blocks = []
        self.ended = False

    @property
    def known(self):
        return len(PROMPTS[self.index]) + len(self.got)


class Schedules(RuleBasedStateMachine):
    """Plans at random. Blocks are handed out anew each time, so none is right by chance."""

    @initialize()
    def begin(self):
        self.engine = engine_of(num_blocks=512)
        self.engine.drafter = know_it_nearly
        self.slots = {}
        self.waiting = dict.fromkeys(range(len(TASKS)), ())
        self.closes = []
        self.next_block = 0
        self.step = 0

    def fresh(self, count):
        blocks = [(self.next_block + place) % 512 for place in range(count)]
        self.next_block += count
        return blocks

    @rule(data=st.data())
    def run_a_step(self, data):
        opens = []
        for index, got in list(self.waiting.items()):
            free = [slot for slot in range(8) if slot not in self.slots]
            if free and data.draw(st.booleans()):
                slot = data.draw(st.sampled_from(free))
                task = task_of(PROMPTS[index], generated=got, max_tokens=14, seed=index,
                               **KINDS[index])  # fmt: skip
                running = self.slots[slot] = Running(index, list(got))
                del self.waiting[index]
                running.blocks = self.fresh(data.draw(st.integers(0, 3)))
                opens.append(SlotOpening(slot=slot, task=task, blocks=i4(running.blocks)))
        planned, blocks = [], []
        for slot, running in self.slots.items():
            if not running.ended and data.draw(st.booleans()):
                left = running.known - running.computed
                rows = data.draw(st.integers(1, left))
                guess = data.draw(st.integers(0, 6)) if rows == left else 0
                end = running.computed + rows + data.draw(st.integers(0, guess))
                growth = -(-end // BLOCK_TOKENS) - len(running.blocks)
                new = self.fresh(max(0, growth))
                running.blocks += new
                blocks += new
                planned.append((slot, rows, rows == left, len(new), guess))
            elif running.ended and data.draw(st.booleans()):
                planned.append((slot, 1, True, 0, 3))
        columns = list(zip(*planned, strict=True)) or [()] * 5
        result = self.engine.run(
            StepPlan(
                step=self.step,
                closes=tuple(self.closes),
                opens=tuple(opens),
                slots=i4(columns[0]),
                rows=i4(columns[1]),
                samples=bytes(columns[2]),
                growth=i4(columns[3]),
                blocks=i4(blocks),
                guesses=bytes(columns[4]),
            )
        )
        self.closes, self.step = [], self.step + 1
        self.settle(planned, result)

    def settle(self, planned, result):
        tokens = iter(ints(result.tokens))
        for place, (slot, rows, draws, _, guess) in enumerate(planned):
            running = self.slots[slot]
            gained = ints(result.counts)[place]
            assert bool(gained) == (draws and not running.ended)
            assert gained <= max(1, guess)
            if running.ended:
                continue
            running.computed += rows + max(0, gained - 1)
            assert ints(result.computed)[place] == running.computed
            running.got += [next(tokens) for _ in range(gained)]
            wanted, finish = EXPECTED[running.index]
            assert running.got == wanted[: len(running.got)]
            running.ended = result.finishes[place] != 0
            assert running.ended == (running.got == wanted)
            assert result.finishes[place] in (0, finish)

    @rule(data=st.data())
    def take_a_slot_away(self, data):
        """Preempted, or its executor died, or it is done: it begins again, or another does."""
        if self.slots:
            slot = data.draw(st.sampled_from(sorted(self.slots)))
            running = self.slots.pop(slot)
            self.closes.append(slot)
            self.waiting[running.index] = () if running.ended else tuple(running.got)


Schedules.TestCase.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)


@pytest.mark.filterwarnings("error")
class TestSchedules(Schedules.TestCase):
    pass
