"""Stop rules, penalties and log-probabilities of slots, against naive ones; broken plans."""

import numpy as np
import pytest
from engine_cases import (
    CONTEXT,
    END,
    VOCAB,
    complete,
    engine_of,
    gained,
    i4,
    ints,
    opening,
    plan_of,
    task_of,
)

from tercet.base.errors import InvariantBroken
from tercet.devices.contract import Outputs
from tercet.engine.echo import EchoExecutable, echo_logits
from tercet.messages.plan import FINISH_LENGTH, FINISH_STOP, StepPlan

PROMPT = tuple((5 * i + 3 * i * i) % VOCAB for i in range(21))


def naive_greedy(task, end_ids=(END,)):
    """One token after another, with counts taken anew from the whole history."""
    asked, known, out = task.sampling, list(task.prompt), []
    stops = {*(() if asked.ignore_eos else end_ids), *asked.stop_token_ids}
    while True:
        scores = echo_logits(known, VOCAB)[-1].astype(np.float64)
        for token, value in asked.logit_bias:
            scores[token] += value
        for token in set(known):
            penalty = asked.repetition_penalty
            scores[token] = (
                scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
            )
        for token in set(out):
            scores[token] -= asked.frequency_penalty * out.count(token) + asked.presence_penalty
        if len(out) < asked.min_tokens:
            scores[[stop for stop in stops if stop < VOCAB]] = -np.inf
        token = int(scores.argmax())
        known.append(token)
        out.append(token)
        if token in stops:
            return out, FINISH_STOP
        if len(out) == asked.max_tokens or len(known) == CONTEXT:
            return out, FINISH_LENGTH


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.6},
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0, "presence_penalty": -1.0},
        {"frequency_penalty": -2.0},
        {"logit_bias": ((END, 4.0), (9, 6.0))},
        {"logit_bias": ((END, 100.0),)},
        {"logit_bias": ((END, 100.0),), "ignore_eos": True},
        {"logit_bias": ((END, 100.0),), "min_tokens": 7},
        {"logit_bias": ((END, 100.0), (9, 90.0)), "min_tokens": 7, "stop_token_ids": (9,)},
        {"logit_bias": ((9, 90.0),), "stop_token_ids": (9,), "ignore_eos": True},
        {"logit_bias": ((9, 90.0),), "stop_token_ids": tuple(range(9, 40))},
        {"stop_token_ids": tuple(range(30)), "min_tokens": 5},
        {"stop_token_ids": (VOCAB, 10**9, 2**31 - 1), "min_tokens": 2},
        {"logit_bias": ((9, 90.0),), "frequency_penalty": 2.0, "stop_token_ids": tuple(range(50))},
    ],
)
def test_tokens_and_ends_equal_the_naive_rules(asked):
    """vllm#54195: a stop id outside the vocabulary never stops anything, and harms nobody."""
    task = task_of(PROMPT, max_tokens=30, **asked)
    assert complete(engine_of(), task, chunk=8) == naive_greedy(task)


def test_a_vocabulary_of_stops_only_still_answers():
    task = task_of(PROMPT, max_tokens=4, min_tokens=2, stop_token_ids=tuple(range(VOCAB)))
    tokens, finish = complete(engine_of(), task)
    assert (len(tokens), finish) == (3, FINISH_STOP)


def test_logprobs_are_told_with_each_token_of_who_asked():
    engine = engine_of()
    tasks = [task_of(PROMPT, logprobs=3), task_of(PROMPT), task_of(PROMPT[:9], logprobs=0)]
    rows = {slot: (len(task.prompt), True) for slot, task in enumerate(tasks)}
    opens = [opening(slot, task) for slot, task in enumerate(tasks)]
    result = engine.run(plan_of(0, rows, opens=opens))
    told = dict(result.logprobs)
    assert sorted(told) == [0, 2]
    for place, num_top in ((0, 3), (2, 0)):
        logits = echo_logits(tasks[place].prompt, VOCAB)[-1].astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum())
        (entry,) = told[place]
        assert entry.token == gained(result, rows)[place]
        assert entry.rank == 1
        np.testing.assert_allclose(entry.logprob, logprobs.max(), rtol=1e-5)
        best = np.argsort(-logprobs)[:num_top]
        assert [token for token, _ in entry.top] == best.tolist()


@pytest.mark.parametrize("chunk", [1, 5, 20, 21])
@pytest.mark.parametrize("company", [False, True])
def test_prompt_logprobs_cover_the_prompt_once_in_any_chunks(chunk, company):
    engine = engine_of()
    task = task_of(PROMPT, prompt_logprobs=2, logprobs=1, repetition_penalty=1.5, max_tokens=3)
    other = task_of(PROMPT[::-1], max_tokens=1000, ignore_eos=True, temperature=1.0)
    entries, tokens = [], []
    if company:
        engine.run(plan_of(0, {5: (21, True)}, opens=[opening(5, other)]))
    opens, done, step = [opening(0, task)], 0, 1
    while len(tokens) < 3:
        rows = min(chunk, len(PROMPT) - done) if done < len(PROMPT) else 1
        done += rows
        planned = {5: (1, True)} if company else {}
        planned[0] = (rows, done >= len(PROMPT))
        result = engine.run(plan_of(step, planned, opens=opens))
        place = list(planned).index(0)
        entries += dict(result.prompt_logprobs).get(place, ())
        token = gained(result, planned).get(0)
        tokens += [] if token is None else [token]
        assert {at for at, _ in result.logprobs} == (set() if token is None else {place})
        opens, step = [], step + 1
    assert entries[0] is None
    assert [entry.token for entry in entries[1:]] == list(PROMPT[1:])
    logits = echo_logits(PROMPT, VOCAB).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for place, entry in enumerate(entries[1:]):
        np.testing.assert_allclose(entry.logprob, logprobs[place, entry.token], rtol=1e-4)
        order = np.argsort(-logprobs[place], kind="stable").tolist()
        assert entry.rank == order.index(entry.token) + 1
        assert [token for token, _ in entry.top] == order[:2]
    alone = complete(engine_of(), task_of(PROMPT, repetition_penalty=1.5, max_tokens=3))
    assert tokens == alone[0]


def test_prompt_logprobs_of_one_token_and_of_a_resumed_task():
    result = engine_of().run(
        plan_of(0, {0: (1, True)}, opens=[opening(0, task_of([4], prompt_logprobs=1))])
    )
    assert result.prompt_logprobs == ((0, (None,)),)
    resumed = task_of(PROMPT, generated=(1, 2), prompt_logprobs=1)
    result = engine_of().run(plan_of(0, {0: (23, True)}, opens=[opening(0, resumed)]))
    assert result.prompt_logprobs == ()


def opened(**sampling):
    engine = engine_of()
    engine.run(plan_of(0, {0: (10, False)}, opens=[opening(0, task_of(PROMPT, **sampling))]))
    return engine


@pytest.mark.parametrize(
    ("story", "plan"),
    [
        ("not open", plan_of(1, {1: (1, True)})),
        ("outside", plan_of(1, {8: (1, True)})),
        ("outside", plan_of(1, {-1: (1, True)})),
        ("12 rows", plan_of(1, {0: (12, True)})),
        ("0 rows", plan_of(1, {0: (0, False)})),
        ("before its last token", plan_of(1, {0: (5, True)})),
        ("twice", StepPlan(step=1, slots=i4([0, 0]), rows=i4([1, 1]), samples=bytes(2),
                           growth=i4([0, 0]))),
        ("lengths", StepPlan(step=1, slots=i4([0]), rows=i4([1]), samples=b"", growth=i4([0]))),
        ("blocks for", plan_of(1, {0: (1, False)}, growth=[2], blocks=[1])),
        ("block id", plan_of(1, {0: (1, False)}, growth=[1], blocks=[5000])),
        ("block id", plan_of(1, {0: (1, False)}, growth=[1], blocks=[-1])),
        ("beyond the context", plan_of(1, {0: (1, False)}, growth=[1], blocks=[9])),
        ("not open", plan_of(1, {}, closes=[3])),
        ("opened twice", plan_of(1, {}, opens=[opening(0, task_of(PROMPT))])),
        ("empty prompt", plan_of(1, {}, opens=[opening(1, task_of([]))])),
        ("vocabulary", plan_of(1, {}, opens=[opening(1, task_of([VOCAB]))])),
        ("vocabulary", plan_of(1, {}, opens=[opening(1, task_of([-1]))])),
        ("no seed", plan_of(1, {}, opens=[opening(1, task_of(PROMPT, seed=None))])),
        ("computed of", plan_of(1, {}, opens=[opening(1, task_of(PROMPT), computed=21)])),
        ("in 1 blocks", plan_of(1, {}, opens=[opening(1, task_of(PROMPT), [3], computed=17)])),
        ("are its end", plan_of(1, {}, opens=[
            opening(1, task_of(PROMPT, max_tokens=2, generated=(1, 2)))])),
        ("from the cache", plan_of(1, {}, opens=[
            opening(1, task_of(PROMPT, prompt_logprobs=0), computed=16)])),
    ],
)  # fmt: skip
def test_a_plan_that_contradicts_the_slots_stops_the_process(story, plan):
    with pytest.raises(InvariantBroken, match=story):
        opened().run(plan)


def test_a_table_shorter_than_the_context_stops_the_process():
    engine = engine_of()
    plan = plan_of(0, {0: (21, True)}, opens=[opening(0, task_of(PROMPT), blocks=[4])])
    with pytest.raises(InvariantBroken, match="1 blocks for a context of 21"):
        engine.run(plan)


def test_a_device_that_invents_ids_stops_the_process():
    """vllm PR#44744: an id at or beyond the vocabulary must not reach a client."""

    class Broken(EchoExecutable):
        def run(self, batch) -> Outputs:
            outputs = super().run(batch)
            outputs.tokens[:] = VOCAB
            return outputs

    engine = engine_of(Broken(vocab=VOCAB))
    with pytest.raises(InvariantBroken, match="outside the vocabulary"):
        engine.run(plan_of(0, {0: (21, True)}, opens=[opening(0, task_of(PROMPT))]))


def test_state_of_many_tasks_does_not_pile_up():
    """vllm#50150: lists that are never drained. Slots forget what they held."""
    engine = engine_of()
    kinds = {"repetition_penalty": 1.1, "logit_bias": ((1, 1.0),), "min_tokens": 1}
    task = task_of(PROMPT, stop_token_ids=tuple(range(40, 60)), **kinds)
    for _ in range(30):
        complete(engine, task)
    slots = engine.slots
    assert not any((slots.counts, slots.biases, slots.stop_ids, slots.stop_sets))
    assert ints(engine.run(plan_of(9, {})).computed) == []
