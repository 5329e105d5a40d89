"""Verified guesses give the tokens that single steps give, whatever was guessed."""

import numpy as np
import pytest
from engine_cases import CONTEXT, VOCAB, complete, engine_of, i4, ints, opening, task_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.messages.plan import (
    FINISH_LENGTH,
    FINISH_STOP,
    GUESS_NONE,
    GUESS_RIGHT,
    GUESS_WRONG,
    SlotOpening,
    StepPlan,
)

KINDS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "logprobs": 2},
    {"temperature": 0.8, "top_p": 0.8, "repetition_penalty": 1.2},
    {"temperature": 0.9, "top_k": 9, "frequency_penalty": 0.7, "min_tokens": 9},
    {"temperature": 0.0, "presence_penalty": 1.0, "logit_bias": ((3, 9.0),), "min_tokens": 5},
    {"temperature": 0.0, "stop_token_ids": tuple(range(20, 34))},
    {"temperature": 0.7, "logprobs": 0, "prompt_logprobs": 1},
]


class Oracle:
    """Guesses the tokens that the task will have, with mistakes where it is told to."""

    def __init__(self, prompt, tokens, wrong=()):
        self.text = list(prompt) + list(tokens)
        self.wrong = frozenset(wrong)

    def __call__(self, tokens, count):
        known = len(tokens)
        guesses = self.text[known : known + count]
        guesses += [0] * (count - len(guesses))  # beyond the end it goes on all the same
        return np.array(
            [(g + 1) % VOCAB if known + n in self.wrong else g for n, g in enumerate(guesses)],
            np.int32,
        )


def decode(engine, task, *, guesses, chunk=1000):
    """Run a task to its end with these guesses step by step (the last again and again)."""
    known, computed = len(task.prompt), 0
    opens, results, step = [opening(0, task)], [], 0
    wanted = list(guesses)
    while True:
        rows = min(chunk, known - computed)
        draws = computed + rows == known
        most = (wanted.pop(0) if len(wanted) > 1 else wanted[0]) if draws and known > 1 else 0
        result = engine.run(
            StepPlan(
                step=step,
                opens=tuple(opens),
                slots=i4([0]),
                rows=i4([rows]),
                samples=bytes([draws]),
                growth=i4([0]),
                guesses=bytes([most]),
            )
        )
        results.append(result)
        gained = ints(result.counts)[0]
        assert bool(gained) == draws
        assert gained <= max(1, most)
        computed += rows + max(0, gained - 1)
        known += gained
        assert ints(result.computed) == [computed]
        opens, step = [], step + 1
        if result.finishes[0]:
            engine.run(StepPlan(step=step, closes=(0,)))
            return results


def told(results):
    return [token for result in results for token in ints(result.tokens)]


def entries(results):
    return [entry for result in results for _, given in result.logprobs for entry in given]


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 3),
    prompt=st.lists(st.integers(4, VOCAB - 1), min_size=1, max_size=40),
    max_tokens=st.integers(1, 30),
    guesses=st.lists(st.integers(0, 12), min_size=1, max_size=20),
    wrong=st.sets(st.integers(0, 70)),
    chunk=st.sampled_from([7, 1000]),
)
@settings(max_examples=300, deadline=None)
def test_tokens_do_not_depend_on_guesses(kind, seed, prompt, max_tokens, guesses, wrong, chunk):
    task = task_of(prompt, **{"max_tokens": max_tokens, "seed": seed} | kind)
    alone = []
    tokens, finish = complete(engine_of(), task, results=alone)
    engine = engine_of()
    engine.drafter = Oracle(prompt, tokens, wrong)
    results = decode(engine, task, guesses=guesses, chunk=chunk)
    assert told(results) == tokens
    assert results[-1].finishes[0] == finish
    assert entries(results) == entries(alone)
    assert len(entries(results)) == (len(tokens) if "logprobs" in kind else 0)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rejected_rows_leave_no_trace(data):
    """The text itself guesses, in a language of so few words that lookup is often right: KV of
    wrong guesses lies where later tokens belong, and is gone when those are computed.
    """
    vocab = data.draw(st.integers(2, 5))
    prompt = data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=30))
    changes = {"vocab": vocab, "end_ids": ()}
    task = task_of(prompt, max_tokens=60, temperature=data.draw(st.sampled_from([0.0, 0.5, 1.0])))
    tokens, _ = complete(engine_of(**changes), task)
    results = decode(engine_of(**changes), task, guesses=data.draw(st.lists(
        st.integers(0, 9), min_size=1, max_size=9)))  # fmt: skip
    assert told(results) == tokens


def test_a_right_guess_saves_steps():
    task = task_of(range(4, 30), max_tokens=20, ignore_eos=True)
    tokens, _ = complete(engine_of(), task)
    engine = engine_of()
    engine.drafter = Oracle(task.prompt, tokens)
    results = decode(engine, task, guesses=[1 + 4])
    assert told(results) == tokens
    assert [ints(result.counts)[0] for result in results] == [5, 5, 5, 5]
    assert [list(result.drafted) for result in results] == [[4]] * 4
    assert [list(result.guessed) for result in results] == [[GUESS_RIGHT]] * 4


def test_a_stop_inside_the_run_ends_there():
    task = task_of(range(4, 30), max_tokens=20, ignore_eos=True)
    tokens, _ = complete(engine_of(), task)
    stop = tokens[2]
    cut = tokens[: tokens.index(stop) + 1]
    stopping = task_of(
        range(4, 30), max_tokens=20, ignore_eos=True, stop_token_ids=(stop,), logprobs=0
    )
    engine = engine_of()
    engine.drafter = Oracle(task.prompt, tokens)
    results = decode(engine, stopping, guesses=[1 + 9])
    assert told(results) == cut
    assert results[-1].finishes[0] == FINISH_STOP
    assert len(results) == 1
    assert len(entries(results)) == len(cut)
    assert ints(results[0].computed) == [26 + len(cut) - 1], "the last token is not computed"


@pytest.mark.parametrize(("max_tokens", "prompt"), [(6, 10), (1, 10), (50, CONTEXT - 4)])
def test_nothing_is_drafted_beyond_the_end(max_tokens, prompt):
    task = task_of(range(4, 4 + prompt % 90), max_tokens=max_tokens, ignore_eos=True)
    if prompt > 90:
        task = task_of([n % 90 + 4 for n in range(prompt)], max_tokens=max_tokens, ignore_eos=True)
    tokens, _ = complete(engine_of(), task)
    engine = engine_of()
    engine.drafter = Oracle(task.prompt, tokens)
    results = decode(engine, task, guesses=[1 + 20])
    assert told(results) == tokens
    assert len(results) == 1
    assert results[0].finishes[0] == FINISH_LENGTH
    assert results[0].drafted == (bytes([len(tokens) - 1]) if len(tokens) > 1 else b"")


def test_nothing_is_drafted_beyond_the_table():
    task = task_of(range(4, 18), max_tokens=40, ignore_eos=True)
    tokens, _ = complete(engine_of(), task)
    engine = engine_of()
    engine.drafter = Oracle(task.prompt, tokens)
    result = engine.run(
        StepPlan(
            step=0,
            opens=(SlotOpening(slot=0, task=task, blocks=i4([5])),),
            slots=i4([0]),
            rows=i4([14]),
            samples=b"\x01",
            growth=i4([0]),
            guesses=bytes([1 + 9]),
        )
    )
    assert ints(result.tokens) == tokens[:3]
    assert list(result.drafted) == [2], "14 known tokens leave two places of 16"


def test_a_look_tells_whether_it_would_have_been_right():
    task = task_of(range(4, 30), max_tokens=20, ignore_eos=True)
    tokens, _ = complete(engine_of(), task)
    engine = engine_of()
    engine.drafter = Oracle(task.prompt, tokens, wrong={27, 29})
    results = decode(engine, task, guesses=[1, 1, 0, 1, 1, 1])
    assert all(ints(result.counts) == [1] for result in results)
    assert all(result.drafted == b"" for result in results)
    seen = [result.guessed[0] if result.guessed else GUESS_NONE for result in results]
    assert seen[:5] == [GUESS_RIGHT, GUESS_WRONG, GUESS_NONE, GUESS_WRONG, GUESS_RIGHT]


def test_some_guess_and_others_score_their_prompts():
    """Rows that draw, rows behind guesses and rows that score prompts stand in one step."""
    drafting = task_of(range(4, 24), max_tokens=12, ignore_eos=True, seed=1)
    scoring = task_of(range(30, 50), max_tokens=3, prompt_logprobs=2, logprobs=1, seed=2)
    tokens, _ = complete(engine_of(), drafting)
    alone = []
    scored, _ = complete(engine_of(), scoring, results=alone)
    engine = engine_of()
    engine.drafter = Oracle(drafting.prompt, tokens, wrong={23})
    first = engine.run(
        StepPlan(
            step=0,
            opens=(opening(0, drafting),),
            slots=i4([0]),
            rows=i4([20]),
            samples=b"\x01",
            growth=i4([0]),
        )
    )
    both = engine.run(
        StepPlan(
            step=1,
            opens=(opening(1, scoring),),
            slots=i4([1, 0]),
            rows=i4([20, 1]),
            samples=b"\x01\x01",
            growth=i4([0, 0]),
            guesses=bytes([0, 1 + 5]),
        )
    )
    assert ints(both.counts) == [1, 3], "21 and 22 were guessed right, 23 was not"
    assert ints(first.tokens) + ints(both.tokens)[1:] == tokens[:4]
    assert ints(both.tokens)[0] == scored[0]
    assert both.prompt_logprobs == alone[0].prompt_logprobs
    assert both.logprobs == alone[0].logprobs
    assert list(both.guessed) == [GUESS_NONE, GUESS_RIGHT]


def test_what_an_earlier_guess_left_behind_is_not_taken_for_one():
    """A slot with few guesses beside one with many: its row of tokens is filled up in `settle`."""
    tasks = [task_of((n, *range(4, 24)), max_tokens=12, ignore_eos=True) for n in (40, 41)]
    texts = [complete(engine_of(), task)[0] for task in tasks]
    engine = engine_of()

    def begin(step, opens, rows, guesses):
        return engine.run(
            StepPlan(
                step=step,
                opens=opens,
                slots=i4([0, 1]),
                rows=i4([rows, rows]),
                samples=b"\x01\x01",
                growth=i4([0, 0]),
                guesses=bytes(guesses),
            )
        )

    begin(0, tuple(opening(slot, task) for slot, task in enumerate(tasks)), 21, [0, 0])
    engine.drafter = lambda tokens, count: np.array(
        texts[tokens[0] - 40][len(tokens) - 21 :][:count], np.int32
    )
    # Behind the one right guess of slot 0 lies, from an earlier wrong one, what it draws next.
    engine.slots.tokens[0, 23] = texts[0][2]
    result = begin(1, (), 1, [1 + 1, 1 + 5])
    assert ints(result.counts) == [2, 6]
    assert ints(result.tokens) == texts[0][1:3] + texts[1][1:7]
