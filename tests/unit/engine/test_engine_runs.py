"""What a task computes does not depend on chunks, company, interruption or cache hits."""

import numpy as np
import pytest
from engine_cases import (
    CONTEXT,
    END,
    VOCAB,
    complete,
    engine_of,
    gained,
    ints,
    opening,
    plan_of,
    task_of,
)

from tercet.base.errors import InvariantBroken
from tercet.base.ids import BLOCK_TOKENS
from tercet.messages.plan import FINISH_LENGTH, FINISH_STOP

PROMPT = tuple((7 * i + i * i) % VOCAB for i in range(40))
KINDS = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.9, "top_k": 10, "top_p": 0.8, "min_p": 0.02},
    {"temperature": 0.7, "repetition_penalty": 1.3},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"min_tokens": 6, "logit_bias": ((END, 100.0), (5, -100.0))},
]


def reference(task):
    return complete(engine_of(), task)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 16, 33])
def test_chunked_equals_whole(kind, chunk):
    task = task_of(PROMPT, max_tokens=20, **kind)
    assert complete(engine_of(), task, chunk=chunk) == reference(task)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_equals_undisturbed(kind):
    """Counts, positions, penalties, bans and limits go on as if nothing had happened."""
    task = task_of(PROMPT, max_tokens=20, ignore_eos=True, **kind)
    tokens, finish = reference(task)
    for cut in range(len(tokens)):
        resumed = task_of(PROMPT, max_tokens=20, ignore_eos=True, generated=tokens[:cut], **kind)
        assert complete(engine_of(), resumed, chunk=9) == (tokens[cut:], finish)


def test_all_kinds_in_one_batch_equal_each_alone():
    tasks = [
        task_of(PROMPT[index : index + 5 + 6 * index], max_tokens=12, seed=index, **kind)
        for index, kind in enumerate(KINDS)
    ]
    alone = [reference(task) for task in tasks]
    engine = engine_of()
    together = {slot: [] for slot in range(len(tasks))}
    finishes = {}
    opens = [opening(slot, task) for slot, task in enumerate(tasks)]
    rows = {slot: (len(task.prompt), True) for slot, task in enumerate(tasks)}
    for step in range(13):
        result = engine.run(plan_of(step, rows, opens=opens))
        for slot, token in gained(result, rows).items():
            together[slot].append(token)
        finishes |= {slot: end for slot, end in zip(rows, result.finishes, strict=True) if end}
        opens, rows = [], dict.fromkeys(rows, (1, True))
    assert [(together[slot], finishes[slot]) for slot in rows] == alone


def test_a_cache_hit_computes_only_the_rest():
    engine = engine_of()
    task = task_of(PROMPT, ignore_eos=True)
    tokens, finish = complete(engine, task)
    # The same blocks, of which two are full and shared; the others are other blocks.
    again = opening(1, task, blocks=[0, 1, 50, 51, 52, 53], computed=2 * BLOCK_TOKENS)
    rows = {1: (len(PROMPT) - 2 * BLOCK_TOKENS, True)}
    got = []
    for step in range(len(tokens)):
        result = engine.run(plan_of(step, rows, opens=[again] if step == 0 else []))
        got += ints(result.tokens)
        rows = {1: (1, True)}
    assert (got, result.finishes[0]) == (tokens, finish)
    assert ints(result.computed) == [len(PROMPT) + len(tokens) - 1]


def test_tables_grow_while_a_task_decodes():
    task = task_of(PROMPT[:15], max_tokens=40, ignore_eos=True)
    expected = reference(task)
    engine = engine_of()
    got, blocks, fresh = [], 1, iter([40, 7, 33])
    rows = {2: (15, True)}
    opens = [opening(2, task, blocks=[9])]
    for step in range(40):
        needed = -(-(15 + step) // BLOCK_TOKENS)
        growth = needed - blocks
        plan = plan_of(
            step, rows, opens=opens, growth=[growth], blocks=[next(fresh) for _ in range(growth)]
        )
        result = engine.run(plan)
        got += ints(result.tokens)
        blocks, opens, rows = needed, [], {2: (1, True)}
    assert (got, result.finishes[0]) == expected


@pytest.mark.parametrize("kind", [{"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}])
def test_choices_of_one_prompt_differ_and_repeat(kind):
    """vllm#14280: `n` choices under one seed are neither equal nor different from run to run."""
    tasks = [task_of(PROMPT, choice=choice, ignore_eos=True, **kind) for choice in range(4)]
    runs = [tuple(reference(task)[0]) for task in tasks]
    assert len(set(runs)) == len(runs)
    assert [tuple(reference(task)[0]) for task in tasks] == runs


def test_a_slot_that_ended_is_dropped_from_the_plan_that_could_not_know():
    engine = engine_of()
    short, long = task_of(PROMPT, max_tokens=1), task_of(PROMPT, max_tokens=9, ignore_eos=True)
    first = plan_of(0, {0: (40, True), 1: (40, True)}, opens=[opening(0, short), opening(1, long)])
    assert engine.run(first).finishes == bytes([FINISH_LENGTH, 0])
    overrun = engine.run(plan_of(1, {0: (1, True), 1: (1, True)}))
    assert ints(overrun.counts) == [0, 1]
    assert overrun.finishes == bytes([0, 0])
    assert ints(overrun.computed) == [40, 41]
    alone = engine.run(plan_of(2, {0: (1, True)}))
    assert (ints(alone.counts), ints(alone.tokens), ints(alone.computed)) == ([0], [], [40])


def test_an_ended_slot_can_be_opened_again():
    engine = engine_of()
    complete(engine, task_of(PROMPT, max_tokens=1, repetition_penalty=2.0, min_tokens=1))
    task = task_of(PROMPT[5:20], max_tokens=10)
    assert complete(engine, task) == reference(task)


def test_closing_and_opening_a_slot_in_one_plan():
    engine = engine_of()
    engine.run(plan_of(0, {0: (40, True)}, opens=[opening(0, task_of(PROMPT))]))
    task = task_of(PROMPT[:9], max_tokens=1)
    result = engine.run(plan_of(1, {0: (9, True)}, closes=[0], opens=[opening(0, task)]))
    assert (ints(result.tokens), result.finishes[0]) == reference(task)


def test_a_plan_without_rows_only_opens_and_closes():
    engine = engine_of()
    result = engine.run(plan_of(5, {}, opens=[opening(0, task_of(PROMPT))]))
    assert (result.step, result.counts, result.computed) == (5, b"", b"")
    engine.run(plan_of(6, {}, closes=[0]))


def test_the_context_ends_a_task():
    task = task_of(PROMPT, max_tokens=1000, ignore_eos=True)
    tokens, finish = reference(task)
    assert (len(PROMPT) + len(tokens), finish) == (CONTEXT, FINISH_LENGTH)


def test_a_clock_times_devices_that_do_not():
    engine = engine_of()
    ticks = iter([100, 350])
    engine._clock = lambda: next(ticks)
    result = engine.run(plan_of(0, {0: (40, True)}, opens=[opening(0, task_of(PROMPT))]))
    assert result.duration_ns == 250


def test_blocks_handed_out_afresh_begin_another_life():
    engine = engine_of()
    task = task_of(PROMPT)
    opens = [opening(0, task, blocks=[4, 5, 6], computed=17)]
    engine.run(plan_of(0, {0: (23, True)}, opens=opens, begins=[3]))
    engine.run(plan_of(1, {0: (1, True)}, growth=[1], blocks=[9], begins=[8]))
    lives = engine.memory.generations(0)
    assert {index: int(lives[index]) for index in (4, 5, 6, 7, 9)} == {4: 0, 5: 0, 6: 3, 7: 0, 9: 8}
    with pytest.raises(InvariantBroken, match="2 lives for 1 fresh"):
        engine.run(plan_of(2, {0: (1, True)}, growth=[1], blocks=[10], begins=[1, 1]))


def test_seeds_of_any_size_are_served():
    for seed in (0, -1, 2**63, 2**64 - 1):
        tokens, _ = reference(task_of(PROMPT, seed=seed, temperature=1.0))
        assert all(0 <= token < VOCAB for token in tokens)
    assert np.iinfo(np.uint64).max == engine_seed(-1)


def engine_seed(seed):
    engine = engine_of()
    engine.run(plan_of(0, {}, opens=[opening(0, task_of(PROMPT, seed=seed))]))
    return int(engine.slots.seed[0])


def test_a_stop_token_ends_a_task():
    free = reference(task_of(PROMPT, max_tokens=12, ignore_eos=True))[0]
    stop = free[5]
    first = free.index(stop)
    stopped = reference(task_of(PROMPT, max_tokens=12, ignore_eos=True, stop_token_ids=(stop,)))
    assert stopped == (free[: first + 1], FINISH_STOP)
