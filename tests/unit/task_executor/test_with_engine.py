"""The real engine carries out the machine's plans: what the fake promises holds of it too."""

from array import array

import pytest
from executor_harness import Harness, task
from fake_engine import FakeEngine
from msgspec.structs import replace

from tercet.base.model import ModelShape
from tercet.engine.echo import EchoExecutable
from tercet.engine.engine import Engine
from tercet.engine.memory import private_memory
from tercet.scheduling.config import SchedulingConfig

VOCAB, CONTEXT = 97, 128
SHAPE = ModelShape(
    family="llama",
    num_layers=1,
    hidden=8,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
    ffn=8,
    vocab=VOCAB,
    context_max=CONTEXT,
    norm_eps=1e-5,
    rope_theta=1e4,
    end_ids=(3,),
)


def _engine(num_blocks, max_slots):
    executable = EchoExecutable(vocab=VOCAB)
    memory = private_memory(executable.block_shape, num_blocks)
    executable.bind(memory)
    return Engine(executable, shape=SHAPE, memory=memory, max_slots=max_slots, clock=lambda: 0)


def _harness(num_blocks, *, rows=4096, slots=8):
    harness = Harness(
        num_blocks=num_blocks,
        context_max=CONTEXT,
        scheduling=SchedulingConfig(max_slots=slots, max_rows=rows),
    )
    harness.engine = _engine(num_blocks, slots)
    return harness


def _tasks():
    shared = [n % 90 + 4 for n in range(40)]
    extra = [{}, {"temperature": 0.7}, {"frequency_penalty": 1.5}, {"min_tokens": 5}]
    return [
        task(n, shared[: 7 * n % 41] + [n + 4] * (n % 5 + 1), new=60, **extra[n % 4])
        for n in range(1, 17)
    ]


def _alone(given):
    harness = _harness(8, slots=1)
    harness.submit(given)
    harness.drain()
    return harness.tokens[given.id], harness.ends[given.id].finish


@pytest.mark.parametrize(("num_blocks", "rows"), [(200, 4096), (200, 16), (14, 4096), (9, 33)])
def test_tokens_do_not_depend_on_company(num_blocks, rows):
    """In a batch, chunked, from the cache, after preemption: the tokens of a run alone."""
    harness = _harness(num_blocks, rows=rows)
    given = _tasks()
    for one in given[:10]:
        harness.submit(one)
    for _ in range(30):
        harness.step()
    harness.submit(given[10], alone=True)
    for one in given[11:]:
        harness.submit(one)
    harness.drain()
    for one in given:
        assert (harness.tokens[one.id], harness.ends[one.id].finish) == _alone(one)
    preempted = any(fact.name == "task.preempted" for fact in harness.facts)
    assert preempted == (num_blocks < 20)
    assert harness.machine.cache.stats().tokens_hit > 0


def test_a_resume_elsewhere_gives_the_rest():
    for one in _tasks()[:6]:
        whole, finish = _alone(one)
        harness = _harness(30)
        harness.submit(replace(one, generated=tuple(whole[:5])))
        harness.drain()
        assert harness.tokens[one.id] == whole[5:]
        assert harness.ends[one.id].finish is finish


def test_cancels_leave_the_engine_in_order():
    harness = _harness(40)
    for one in _tasks():
        harness.submit(one)
        for _ in range(2):
            if harness.plans:
                harness.step()
        if one.id % 3 == 0:
            harness.cancel(one.id)
    harness.drain()
    for one in _tasks():
        if one.id % 3:
            assert harness.tokens[one.id] == _alone(one)[0]


def test_the_fake_and_the_engine_tell_the_same_counts():
    results = []
    for engine in (FakeEngine(context_max=CONTEXT, num_blocks=40), _engine(40, 8)):
        harness = _harness(40)
        harness.engine = engine
        seen = []
        for one in _tasks()[:4]:
            harness.submit(task(one.id, one.prompt, new=9, ignore_eos=True))
        while harness.plans:
            plan = harness.plans[0][0]
            result = engine.run(plan)
            counts = array("i")
            counts.frombytes(result.counts + result.computed)
            seen.append((list(counts), list(result.finishes), len(result.tokens)))
            engine_run, harness.engine = harness.engine, _Replay(result)
            harness.step()
            harness.engine = engine_run
        results.append(seen)
    assert results[0] == results[1]


class _Replay:
    """Gives a result that is there already."""

    def __init__(self, result):
        self._result = result

    def run(self, plan):
        del plan
        return self._result
