"""An engine on a fake device, and plans written by hand."""

import numpy as np

from tercet.base.ids import BLOCK_TOKENS, TaskId
from tercet.base.model import ModelShape
from tercet.engine.echo import EchoExecutable
from tercet.engine.engine import Engine
from tercet.engine.memory import private_memory
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.plan import SlotOpening, StepPlan

VOCAB = 97
END = 3
CONTEXT = 128


def shape_of(**changes):
    sizes = {
        "family": "llama",
        "num_layers": 2,
        "hidden": 32,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "ffn": 48,
        "vocab": VOCAB,
        "context_max": CONTEXT,
        "norm_eps": 1e-5,
        "rope_theta": 1e4,
        "end_ids": (END,),
    }
    return ModelShape(**sizes | changes)


def engine_of(executable=None, *, max_slots=8, num_blocks=64, **changes):
    shape = shape_of(**changes)
    executable = executable or EchoExecutable(vocab=shape.vocab)
    memory = private_memory(executable.block_shape, num_blocks)
    executable.bind(memory)
    return Engine(executable, shape=shape, memory=memory, max_slots=max_slots, clock=lambda: 0)


def task_of(prompt, *, generated=(), choice=0, **sampling):
    defaults = {"max_tokens": 8, "temperature": 0.0, "seed": 11}
    return Task(
        id=TaskId(1),
        model="m",
        prompt=tuple(prompt),
        generated=tuple(generated),
        choice=choice,
        sampling=SamplingParameters(**defaults | sampling),
    )


def i4(values):
    return np.asarray(list(values), "<i4").tobytes()


def ints(data):
    return np.frombuffer(data, "<i4").tolist()


def opening(slot, task, blocks=None, computed=0):
    """By default slot n holds blocks 8n .. 8n+7: room for the whole context."""
    if blocks is None:
        per_slot = CONTEXT // BLOCK_TOKENS
        blocks = range(slot * per_slot, (slot + 1) * per_slot)
    return SlotOpening(slot=slot, task=task, blocks=i4(blocks), computed=computed)


def plan_of(step, rows, *, opens=(), closes=(), growth=None, blocks=(), begins=()):
    """`rows`: slot -> (rows, whether it draws)."""
    return StepPlan(
        step=step,
        opens=tuple(opens),
        closes=tuple(closes),
        slots=i4(rows),
        rows=i4(count for count, _ in rows.values()),
        samples=bytes(bool(draws) for _, draws in rows.values()),
        growth=i4(growth or [0] * len(rows)),
        blocks=i4(blocks),
        begins=i4(begins),
    )


def gained(result, rows):
    """Slot -> its token, of those that gained one."""
    counts = ints(result.counts)
    tokens = iter(ints(result.tokens))
    return {slot: next(tokens) for slot, count in zip(rows, counts, strict=True) if count}


def complete(engine, task, *, slot=0, chunk=1000, computed=0, results=None):
    """Run one task alone to its end; its new tokens and how it ended."""
    known = len(task.prompt) + len(task.generated)
    opens, tokens, step = [opening(slot, task, computed=computed)], [], 0
    while True:
        rows = min(chunk, known - computed)
        draws = computed + rows == known
        plan = plan_of(step, {slot: (rows, draws)}, opens=opens)
        result = engine.run(plan)
        if results is not None:
            results.append(result)
        opens, step, computed = [], step + 1, computed + rows
        assert ints(result.computed) == [computed]
        tokens += ints(result.tokens)
        known += len(ints(result.tokens))
        if result.finishes[0]:
            engine.run(StepPlan(step=step, closes=(slot,)))
            return tokens, result.finishes[0]
