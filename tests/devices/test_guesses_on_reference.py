"""Guesses on a device that computes: tokens, log-probabilities and KV are those of single steps.

A BLAS sums differently for different numbers of rows, so runs are compared up to the first
position where the two best scores are closer than `NEAR`.
"""

import numpy as np
import pytest
from float32_models import open_float32
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.base.ids import TaskId
from tercet.devices.reference import ReferenceDevice
from tercet.engine.build import build_engine, compile_model, kv_memory
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.plan import SlotOpening, StepPlan
from tercet.models.config import ModelCacheConfig

NEAR = 1e-3
NEAR_LOGPROB = 1e-4
BLOCKS = 12
KINDS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.7, "repetition_penalty": 1.4, "frequency_penalty": 0.4},
]


class Watched:
    """An executable that notes the margins of what it draws."""

    def __init__(self, executable):
        self._executable = executable
        self.margins = []

    def run(self, batch):
        outputs = self._executable.run(batch)
        self.margins = outputs.margins.tolist()
        return outputs


@pytest.fixture(scope="module", params=["random:llama?seed=1", "random:qwen3?seed=3&kv_heads=1"])
def engine(request, tmp_path_factory):
    cache = ModelCacheConfig(folder=tmp_path_factory.mktemp("models"))
    model = open_float32(request.param, cache=cache)
    executable = compile_model(model, ReferenceDevice())
    memory = kv_memory(executable, 2 * BLOCKS)
    built = build_engine(executable, shape=model.shape, memory=memory, max_slots=2)
    built.executable = Watched(built.executable)
    return built


def i4(values):
    return np.array(list(values), "<i4").tobytes()


def task_of(kind, *, seed, length):
    prompt = tuple((seed * 31 + 7 * place + place**2) % 256 for place in range(length))
    asked = SamplingParameters(max_tokens=24, seed=seed, ignore_eos=True, logprobs=1, **kind)
    return Task(id=TaskId(1), model="m", prompt=prompt, sampling=asked)


def run(engine, tasks, guesses):
    """Tasks together to their ends; for each its tokens, log-probabilities and margins."""
    opens = tuple(
        SlotOpening(slot=slot, task=task, blocks=i4(range(slot * BLOCKS, (slot + 1) * BLOCKS)))
        for slot, task in enumerate(tasks)
    )
    told = [([], [], []) for _ in tasks]
    rows = [len(task.prompt) for task in tasks]
    alive, step = list(range(len(tasks))), 0
    while alive:
        plan = StepPlan(
            step=step,
            opens=opens,
            slots=i4(alive),
            rows=i4(rows[slot] for slot in alive),
            samples=b"\x01" * len(alive),
            growth=bytes(4 * len(alive)),
            guesses=bytes(guesses[(step + slot) % len(guesses)] for slot in alive),
        )
        result = engine.run(plan)
        margins = iter(engine.executable.margins)
        drafted = result.drafted or bytes(len(alive))
        for (_, entries), slot, drafts in zip(result.logprobs, alive, drafted, strict=True):
            drawn = [next(margins) for _ in range(1 + drafts)]
            told[slot][0].extend(entry.token for entry in entries)
            told[slot][1].extend(entry.logprob for entry in entries)
            told[slot][2].extend(drawn[: len(entries)])
        rows = [1] * len(tasks)
        finished = dict(zip(alive, result.finishes, strict=True))
        opens, step = (), step + 1
        alive = [slot for slot in alive if not finished[slot]]
    engine.run(StepPlan(step=step, closes=tuple(range(len(tasks)))))
    return told


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    seed=st.integers(0, 5),
    length=st.integers(1, 70),
    guesses=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    mistakes=st.integers(1, 9),
)
@settings(max_examples=20, deadline=None)
def test_guesses_change_nothing(engine, kinds, seed, length, guesses, mistakes):
    tasks = [task_of(kind, seed=seed + at, length=length) for at, kind in enumerate(kinds)]
    plain = [run(engine, [task], [0])[0] for task in tasks]
    texts = [[*task.prompt, *tokens] for task, (tokens, _, _) in zip(tasks, plain, strict=True)]

    def know_it_nearly(tokens, count):
        known = len(tokens)
        text = next((text for text in texts if text[:known] == tokens.tolist()), [0] * 999)
        guess = text[known : known + count]
        return np.array([g ^ ((known + n) % mistakes == 0) for n, g in enumerate(guess)], np.int32)

    engine.drafter = know_it_nearly
    guessed = run(engine, tasks, guesses)
    for (tokens, logprobs, margins), (others, other_logprobs, other_margins) in zip(
        plain, guessed, strict=True
    ):
        assert len(tokens) == len(others) == 24
        for place, pair in enumerate(zip(tokens, others, strict=True)):
            if pair[0] != pair[1]:
                assert min(margins[place], other_margins[place]) < NEAR
                break
            assert abs(logprobs[place] - other_logprobs[place]) < NEAR_LOGPROB
