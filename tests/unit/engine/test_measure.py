"""Measured step costs: exact on a linear device, never negative on a noisy one."""

import numpy as np
import pytest
from engine_cases import shape_of

from tercet.devices.cost.device import CostDevice
from tercet.devices.cost.durations import LinearDuration
from tercet.engine.engine import Engine
from tercet.engine.measure import fit
from tercet.engine.memory import private_memory
from tercet.models.families.build import build


def measured(duration, *, num_blocks=64, **changes):
    shape = shape_of(context_max=4096, **changes)
    executable = CostDevice(duration=duration).compile(build(shape), {})
    memory = private_memory(executable.block_shape, num_blocks)
    return Engine(executable, shape=shape, memory=memory, max_slots=4, clock=lambda: 0).measure()


@pytest.mark.parametrize("num_blocks", [64, 1000])
@pytest.mark.parametrize(
    ("base", "row", "logit", "pair"),
    [(1e5, 2e3, 5e3, 10.0), (3e7, 1e6, 5e5, 500.0), (1e8, 0.0, 0.0, 0.0), (2e6, 5e3, 1e4, 0.0)],
)
def test_a_linear_device_is_measured_exactly(num_blocks, base, row, logit, pair):
    duration = LinearDuration(base_ns=base, per_row_ns=row, per_logit_ns=logit, per_pair_ns=pair)
    cost = measured(duration, num_blocks=num_blocks)
    for rows, logits, pairs in ((1, 1, 300), (64, 64, 20_000), (512, 1, 131_328)):
        told = cost.predict_ns(rows=rows, logits=logits, pairs=pairs)
        real = base + rows * row + logits * logit + pairs * pair
        assert told == pytest.approx(real, rel=1e-3)


def test_a_device_without_time_costs_nothing():
    cost = measured(lambda _: 0)
    assert cost.predict_ns(rows=1000, logits=1000, pairs=10**6) == 0


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_smallest_memory_is_enough(blocks):
    assert measured(LinearDuration(base_ns=1e6), num_blocks=blocks).base_ns > 0


def test_coefficients_are_never_negative():
    rng = np.random.default_rng(0)
    sizes = np.array([[1, 1, 1, 1], [1, 32, 1, 528], [1, 32, 32, 528], [1, 32, 1, 33_296]], float)
    for _ in range(50):
        times = rng.uniform(1e6, 1e8, 4)
        cost = fit(sizes, times)
        parts = (cost.base_ns, cost.per_row_ns, cost.per_logit_ns, cost.per_pair_ns)
        assert min(parts) >= 0.0
        assert max(parts) > 0.0


def test_an_engine_that_holds_tasks_is_not_measured():
    from engine_cases import engine_of, opening, plan_of, task_of

    from tercet.base.errors import InvariantBroken

    engine = engine_of()
    engine.run(plan_of(0, {}, opens=[opening(0, task_of([1, 2]))]))
    with pytest.raises(InvariantBroken, match="holds tasks"):
        engine.measure()
