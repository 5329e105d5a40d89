"""The engine on the reference device with a small random model: chunks, company, resumption.

A BLAS sums differently for different numbers of rows, so runs are compared up to the first
position where the two best scores are closer than `NEAR`.
"""

import numpy as np
import pytest
from float32_models import open_float32

from tercet.base.errors import Invalid, InvariantBroken
from tercet.base.ids import TaskId
from tercet.devices.contract import CompileOptions
from tercet.devices.reference import ReferenceDevice
from tercet.engine.build import build_engine, compile_model, kv_block_bytes, kv_memory
from tercet.engine.memory import private_memory
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.plan import SlotOpening, StepPlan
from tercet.models.config import ModelCacheConfig

NEAR = 1e-3
BLOCKS_PER_SLOT = 12
NUM_SLOTS = 12
FAMILIES = ["random:llama?seed=1", "random:qwen2?seed=2", "random:qwen3?seed=3&kv_heads=1"]
KINDS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.0, "repetition_penalty": 1.4, "frequency_penalty": 0.4},
]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return open_float32(request.param, cache=ModelCacheConfig(folder=folder))


class Watched:
    """An executable that notes the margins of what it draws."""

    def __init__(self, executable):
        self._executable = executable
        self.margins = []

    def run(self, batch):
        outputs = self._executable.run(batch)
        self.margins.append(outputs.margins.tolist())
        return outputs


@pytest.fixture
def engine(model):
    executable = compile_model(model, ReferenceDevice())
    memory = kv_memory(executable, NUM_SLOTS * BLOCKS_PER_SLOT)
    built = build_engine(executable, shape=model.shape, memory=memory, max_slots=NUM_SLOTS)
    built.executable = Watched(built.executable)
    return built


def task_of(index, kind, generated=()):
    prompt = tuple((index * 31 + 7 * place + place**2) % 256 for place in range(5 + 9 * index))
    return Task(
        id=TaskId(index),
        model="m",
        prompt=prompt,
        generated=tuple(generated),
        sampling=SamplingParameters(max_tokens=12, seed=index, ignore_eos=True, **kind),
    )


def i4(values):
    return np.array(list(values), "<i4").tobytes()


def run(engine, tasks, *, chunk=1000, first_slot=0):
    """All tasks together from start to end: for each its tokens and margins."""
    slots = range(first_slot, first_slot + len(tasks))
    opens = tuple(
        SlotOpening(
            slot=slot,
            task=task,
            blocks=i4(range(slot * BLOCKS_PER_SLOT, (slot + 1) * BLOCKS_PER_SLOT)),
        )
        for slot, task in zip(slots, tasks, strict=True)
    )
    known = [len(task.prompt) + len(task.generated) for task in tasks]
    computed = [0] * len(tasks)
    tokens = [[] for _ in tasks]
    margins = [[] for _ in tasks]
    ended = [False] * len(tasks)
    step = 0
    while not all(ended):
        alive = [place for place in range(len(tasks)) if not ended[place]]
        rows = [min(chunk, known[place] - computed[place]) for place in alive]
        draws = [computed[p] + n == known[p] for p, n in zip(alive, rows, strict=True)]
        result = engine.run(
            StepPlan(
                step=step,
                opens=opens if step == 0 else (),
                slots=i4(slots[place] for place in alive),
                rows=i4(rows),
                samples=bytes(draws),
                growth=i4([0] * len(alive)),
            )
        )
        new = iter(np.frombuffer(result.tokens, "<i4").tolist())
        seen = iter(engine.executable.margins[-1])
        for place, n, draw in zip(alive, rows, draws, strict=True):
            computed[place] += n
            if draw:
                tokens[place].append(next(new))
                margins[place].append(next(seen))
                known[place] += 1
        for place, finish in zip(alive, result.finishes, strict=True):
            ended[place] = bool(finish)
        step += 1
    engine.run(StepPlan(step=step, closes=tuple(slots)))
    return list(zip(tokens, margins, strict=True))


def near_ties(one, other):
    """How many positions at the end are out of comparison; those before are equal."""
    (tokens, margins), (other_tokens, other_margins) = one, other
    assert len(tokens) == len(other_tokens)
    for place, pair in enumerate(zip(tokens, other_tokens, strict=True)):
        if pair[0] != pair[1]:
            assert min(margins[place], other_margins[place]) < NEAR
            return len(tokens) - place
    return 0


@pytest.mark.parametrize("kind", KINDS)
def test_chunked_in_company_and_resumed_equal_whole_alone_and_undisturbed(engine, kind):
    tasks = [task_of(index, kind) for index in range(6)]
    alone = [run(engine, [task])[0] for task in tasks]
    assert len({tuple(tokens) for tokens, _ in alone}) > 3, "the tasks should differ"
    lost = 0
    for others in (
        run(engine, tasks),
        run(engine, tasks, chunk=16, first_slot=2),
        [run(engine, [task], chunk=7, first_slot=5)[0] for task in tasks],
    ):
        lost += sum(near_ties(one, other) for one, other in zip(alone, others, strict=True))
    resumed = [
        task_of(index, kind, generated=tokens[:5]) for index, (tokens, _) in enumerate(alone)
    ]
    for one, other in zip(alone, run(engine, resumed), strict=True):
        lost += near_ties((one[0][5:], one[1][5:]), other)
    assert lost <= 0.05 * 4 * 72, f"{lost} positions behind near-ties"


def test_steps_are_measured(engine):
    cost = engine.measure()
    assert min(cost.base_ns, cost.per_row_ns, cost.per_logit_ns, cost.per_pair_ns) >= 0.0
    assert cost.predict_ns(rows=64, logits=1, pairs=2080) > 0


def test_memory_of_another_type_stops_the_process(model):
    executable = compile_model(model, ReferenceDevice())
    assert kv_block_bytes(executable) == 4 * int(np.prod(executable.block_shape))
    memory = private_memory(
        (*executable.block_shape[:-1], executable.block_shape[-1] * 4), 4, dtype="u1"
    )
    with pytest.raises(InvariantBroken, match="for a device that wants float32"):
        build_engine(executable, shape=model.shape, memory=memory, max_slots=2)


@pytest.mark.parametrize("kv_dtype", ["auto", "float32", "bf16", "int8"])
def test_the_reference_device_keeps_float32_alone(model, kv_dtype):
    options = CompileOptions(kv_dtype=kv_dtype)
    if kv_dtype in {"auto", "float32"}:
        assert compile_model(model, ReferenceDevice(), options).kv_dtype is np.float32
        return
    with pytest.raises(Invalid, match=f"kv_dtype is '{kv_dtype}'; the reference device keeps"):
        compile_model(model, ReferenceDevice(), options)
