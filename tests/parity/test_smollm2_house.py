"""SmolLM2 through machine, cache and engine: the tokens of transformers, whatever happens to a job.

Together, chunked, from the cache, after preemption: a scheduler and a prefix cache between the
prompts and the device change nothing, up to the first near-tie (a BLAS rounds by company).
"""

import numpy as np
import pytest
from executor_harness import Harness, task
from smollm2_models import opened, prompts, theirs
from transformers_models import agree_until_tie, their_greedy

from tercet.devices.reference import ReferenceDevice
from tercet.engine.build import build_engine, compile_model, kv_memory
from tercet.scheduling.config import SchedulingConfig

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

LENGTHS = [int(length) for length in np.geomspace(5, 1500, 40).round()]
SLOTS = 32


def _harness(*, num_blocks: int, rows: int) -> Harness:
    """The machine with the real engine on the real model; only the processes are missing."""
    model = opened()
    harness = Harness(
        num_blocks=num_blocks,
        context_max=model.shape.context_max,
        scheduling=SchedulingConfig(max_slots=SLOTS, max_rows=rows),
    )
    executable = compile_model(model, ReferenceDevice())
    harness.engine = build_engine(
        executable,
        shape=model.shape,
        memory=kv_memory(executable, num_blocks),
        max_slots=SLOTS,
        clock=lambda: 0,
    )
    return harness


def _answers(harness: Harness, asked: list[list[int]], *, new: int, first: int) -> list[list[int]]:
    for index, ids in enumerate(asked):
        harness.submit(task(first + index, ids, new=new, temperature=0.0, ignore_eos=True))
    harness.drain(steps_max=100_000)
    return [harness.tokens[first + index] for index in range(len(asked))]


def _cached_tokens(harness: Harness, numbers: range) -> int:
    return sum(
        update.cached_tokens or 0 for number in numbers for update in harness.updates[number]
    )


def compare(lengths: list[int], *, new: int, num_blocks_tight: int) -> None:
    asked = prompts(lengths)
    expected = [their_greedy(theirs(), ids, new) for ids in asked]
    count = len(asked)
    roomy = sum(-(-(length + new) // 16) for length in lengths) + 8

    cold = _harness(num_blocks=roomy, rows=4096)
    runs = {"cold": _answers(cold, asked, new=new, first=1)}
    assert _cached_tokens(cold, range(1, count + 1)) == 0
    runs["cached"] = _answers(cold, asked, new=new, first=1001)
    assert _cached_tokens(cold, range(1001, 1001 + count)) > sum(lengths) // 2
    runs["in chunks"] = _answers(
        _harness(num_blocks=roomy, rows=SLOTS + 16), asked, new=new, first=1
    )
    tight = _harness(num_blocks=num_blocks_tight, rows=4096)
    runs["preempted"] = _answers(tight, asked, new=new, first=1)
    preempted = sum(fact.name == "task.preempted" for fact in tight.facts)
    assert preempted, "the memory was not tight enough to preempt anything"
    for name, answers in runs.items():
        compared = [
            agree_until_tie(answer, tokens, margins)
            for answer, (tokens, margins) in zip(answers, expected, strict=True)
        ]
        ties = sum(length < new for length in compared)
        print(f"{name}: {sum(compared)} tokens of {count} prompts equal, {ties} near-ties")
        assert sum(compared) >= 0.9 * new * count
    print(f"{preempted} preemptions")


def test_a_few_prompts_in_every_company() -> None:
    compare([13, 29, 46, 62], new=12, num_blocks_tight=12)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_forty_prompts_in_every_company() -> None:
    compare(LENGTHS, new=64, num_blocks_tight=130)
