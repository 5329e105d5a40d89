"""Whatever steps cost and texts are like: guessing changes no token and makes no batch slower."""

from executor_harness import Harness, task
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.base.model import ModelShape
from tercet.devices.cost.config import CostConfig
from tercet.devices.cost.device import CostDevice
from tercet.engine.build import private_memory
from tercet.engine.engine import Engine
from tercet.messages.plan import StepCost
from tercet.models.families.build import build
from tercet.scheduling.config import SchedulingConfig

SHAPE = ModelShape(
    family="llama", num_layers=1, hidden=8, num_heads=1, num_kv_heads=1, head_dim=8, ffn=8,
    vocab=997, context_max=400, norm_eps=1e-5, rope_theta=1e4, end_ids=(3,),
)  # fmt: skip
PROGRAM = build(SHAPE)
BLOCKS = 600


class Clocked:
    """An engine that sums up how long its steps took."""

    def __init__(self, duration, repeat):
        device = CostDevice(config=CostConfig(repeat=repeat), duration=duration)
        executable = device.compile(PROGRAM, {})
        memory = private_memory(executable.block_shape, BLOCKS)
        self._engine = Engine(executable, shape=SHAPE, memory=memory, max_slots=64, clock=lambda: 0)
        self.total_ns = 0

    def run(self, plan):
        result = self._engine.run(plan)
        self.total_ns += result.duration_ns
        return result


def serve(tasks, *, cost, duration, repeat, speculation):
    """Time, tokens and accepted guesses of these tasks, all given at once."""
    harness = Harness(
        num_blocks=BLOCKS,
        context_max=SHAPE.context_max,
        cost=cost,
        scheduling=SchedulingConfig(max_slots=64, speculation=speculation),
    )
    harness.engine = Clocked(duration, repeat)
    for given_ in tasks:
        harness.submit(given_)
    harness.drain()
    accepted = sum(dict(fact.values).get("accepted", 0) for fact in harness.facts)
    return harness.engine.total_ns, harness.tokens, accepted


def both(tasks, *, cost, duration, repeat):
    auto = serve(tasks, cost=cost, duration=duration, repeat=repeat, speculation="auto")
    off = serve(tasks, cost=cost, duration=duration, repeat=repeat, speculation="off")
    assert auto[1] == off[1]
    assert off[2] == 0
    return auto[0] / off[0], auto[2]


def linear(cost, *, second_row_ns=0.0):
    def duration(sizes):
        return cost.predict_ns(
            rows=sizes.rows, logits=sizes.logits_rows, pairs=sizes.attended_pairs
        ) + int(second_row_ns * (sizes.rows > 1))

    return duration


@given(
    base=st.floats(1e6, 5e7),
    row=st.floats(1e3, 2e7),
    logit=st.floats(0, 2e6),
    second_row=st.sampled_from([0.0, 0.0, 1.0, 3.0]),
    wrong=st.sampled_from([1.0, 1.0, 0.3, 3.0]),
    repeat=st.sampled_from([0, 3, 9, 40]),
    sizes=st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 120), st.floats(0, 1)), min_size=1, max_size=24
    ),
)
@settings(max_examples=30, deadline=None)
def test_no_batch_gets_slower(base, row, logit, second_row, wrong, repeat, sizes):
    """`second_row`: a step of two rows takes so many times the base more than one of one row, and
    `wrong`: rows cost so many times what was measured at start.
    """
    cost = StepCost(base_ns=base, per_row_ns=row, per_logit_ns=logit, per_pair_ns=10.0)
    measured = StepCost(
        base_ns=base, per_row_ns=row / wrong, per_logit_ns=logit / wrong, per_pair_ns=10.0
    )
    duration = linear(cost, second_row_ns=second_row * base)
    tasks = [
        task(number, [number % 90 + 4, *range(prompt)], new=new, temperature=heat)
        for number, (prompt, new, heat) in enumerate(sizes, start=1)
    ]
    ratio, _ = both(tasks, cost=measured, duration=duration, repeat=repeat)
    # What rows really cost is learned by trying: some steps of short batches are lessons.
    num_tokens = sum(new for _, new, _ in sizes)
    lessons = 40 / num_tokens if second_row or wrong != 1.0 else 8 / num_tokens
    assert ratio < 1.03 + lessons


def test_one_stream_of_quotes_is_several_times_as_fast():
    cost = StepCost(base_ns=3e6, per_row_ns=2e5, per_logit_ns=1e5, per_pair_ns=10.0)
    tasks = [task(1, range(50), new=300, ignore_eos=True)]
    ratio, accepted = both(tasks, cost=cost, duration=linear(cost), repeat=11)
    assert accepted > 200
    assert ratio < 0.4


def test_text_that_never_repeats_takes_as_long_as_ever():
    cost = StepCost(base_ns=3e6, per_row_ns=2e5, per_logit_ns=1e5, per_pair_ns=10.0)
    tasks = [task(1, range(50), new=300, ignore_eos=True)]
    ratio, accepted = both(tasks, cost=cost, duration=linear(cost), repeat=0)
    assert ratio == 1.0
    assert accepted == 0
