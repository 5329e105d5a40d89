from typing import Any

import numpy as np
import pytest

from tercet.runtime.config import Fault
from tercet.runtime.faulty import FaultyExecutable, InjectedFault, faults_of


class Inner:
    block_shape = (1,)
    kv_dtype = np.float32

    def __init__(self) -> None:
        self.num_runs = 0

    def bind(self, kv: Any) -> None: ...

    def run(self, batch: Any) -> str:
        self.num_runs += 1
        return "out"


class Step:
    def __init__(self, *ids: int) -> None:
        self.ids = np.array(ids, np.int32)


def test_it_strikes_in_the_step_that_was_ordered() -> None:
    inner = Inner()
    faulty = FaultyExecutable(inner, (Fault(kind="raise", step=2),))  # type: ignore[arg-type]
    assert faulty.run(Step(1)) == "out"  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(InjectedFault):
        faulty.run(Step(1))  # type: ignore[arg-type]
    assert inner.num_runs == 1


def test_it_strikes_whenever_the_token_is_computed() -> None:
    faulty = FaultyExecutable(Inner(), (Fault(kind="raise", token=9),))  # type: ignore[arg-type]
    faulty.run(Step(1, 2))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(InjectedFault):
            faulty.run(Step(1, 9))  # type: ignore[arg-type]


def test_faults_are_bound_to_executors() -> None:
    any_, third = Fault(kind="spin", step=1), Fault(kind="exit", step=1, executor=3)
    assert faults_of((any_, third), 2) == (any_,)
    assert faults_of((any_, third), 3) == (any_, third)
