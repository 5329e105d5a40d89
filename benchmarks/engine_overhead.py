"""What the engine itself costs per step and token: the cost device takes no time.

python -m benchmarks.engine_overhead [slots]
"""

import sys
import time
from collections.abc import Iterable

import numpy as np

from benchmarks.report import grid
from tercet.base.ids import TaskId
from tercet.base.model import ModelShape
from tercet.devices.cost.device import CostExecutable
from tercet.devices.cost.durations import no_time
from tercet.engine.batch import build, seat
from tercet.engine.engine import Engine
from tercet.engine.memory import private_memory
from tercet.engine.settle import settle
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.plan import SlotOpening, StepPlan

STEPS = 400
PROMPT = 288
COLUMNS = ("sampling", "seat and build", "device", "settle", "step", "a token")
VARIANTS = {
    "greedy": {"temperature": 0.0},
    "sampled, top-k, top-p": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "penalties": {"temperature": 0.8, "repetition_penalty": 1.1},
    "logprobs 5": {"temperature": 0.0, "logprobs": 5},
}


def i4(values: Iterable[int]) -> bytes:
    return np.array(list(values), "<i4").tobytes()


def engine_with(num_slots: int, sampling: dict[str, float | int]) -> Engine:
    shape = ModelShape(
        family="llama", num_layers=1, hidden=8, num_heads=1, num_kv_heads=1, head_dim=8, ffn=8,
        vocab=49_152, context_max=8192, norm_eps=1e-5, rope_theta=1e4, end_ids=(2,),
    )  # fmt: skip
    executable = CostExecutable(duration=no_time, sleep=None)
    per_slot = (PROMPT + STEPS) // 16 + 2
    memory = private_memory(executable.block_shape, num_slots * per_slot)
    engine = Engine(
        executable, shape=shape, memory=memory, max_slots=num_slots, clock=time.perf_counter_ns
    )
    opens = tuple(
        SlotOpening(
            slot=slot,
            task=Task(
                id=TaskId(slot),
                model="m",
                prompt=tuple(range(PROMPT)),
                sampling=SamplingParameters(
                    max_tokens=STEPS + 10, seed=slot, ignore_eos=True, **sampling
                ),
            ),
            blocks=i4(range(slot * per_slot, (slot + 1) * per_slot)),
        )
        for slot in range(num_slots)
    )
    engine.run(StepPlan(step=0, opens=opens, **rows_of(num_slots, PROMPT)))
    return engine


def rows_of(num_slots: int, rows: int) -> dict[str, bytes]:
    return {
        "slots": i4(range(num_slots)),
        "rows": i4([rows] * num_slots),
        "samples": bytes([1] * num_slots),
        "growth": i4([0] * num_slots),
    }


def rows(num_slots: int) -> list[tuple[str | float, ...]]:
    """Microseconds of each part of a step, for every variant of sampling."""
    found: list[tuple[str | float, ...]] = []
    for name, sampling in VARIANTS.items():
        engine = engine_with(num_slots, sampling)
        plan = StepPlan(step=1, **rows_of(num_slots, 1))
        spent = np.zeros(3)
        for _ in range(STEPS):
            start = time.perf_counter()
            seating = seat(engine.slots, plan)
            batch = build(engine.slots, seating)
            built = time.perf_counter()
            outputs = engine.executable.run(batch)
            ran = time.perf_counter()
            settle(engine.slots, seating, outputs, step=1)
            spent += (built - start, ran - built, time.perf_counter() - ran)
        parts = [float(part) for part in spent / STEPS * 1e6]
        found.append((name, *parts, sum(parts), sum(parts) / num_slots))
    return found


def main() -> None:
    num_slots = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    print(f"{num_slots} slots, contexts of {PROMPT} to {PROMPT + STEPS}; microseconds")
    print("\n".join(grid(COLUMNS, rows(num_slots))))


if __name__ == "__main__":
    main()
