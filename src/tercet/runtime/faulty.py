"""A device that misbehaves on order, below everything that has to notice: for tests only."""

import ctypes
import os
import time
from typing import Any

from tercet.devices.contract import Batch, Executable, KvMemory, Outputs
from tercet.runtime.config import Fault

_LONG_S = 100_000


class InjectedFault(RuntimeError):  # noqa: N818  not an error of ours
    """Raised because a test asked for it."""


class FaultyExecutable:
    """Runs another executable, except where a fault was ordered for the step."""

    def __init__(self, inner: Executable, faults: tuple[Fault, ...]) -> None:
        self.inner = inner
        self.block_shape = inner.block_shape
        self.kv_dtype: Any = inner.kv_dtype
        self._faults = faults
        self._step = 0

    def bind(self, kv: KvMemory) -> None:
        self.inner.bind(kv)

    def run(self, batch: Batch) -> Outputs:
        self._step += 1
        for fault in self._faults:
            if self._applies(fault, batch):
                _misbehave(fault)
        return self.inner.run(batch)

    def _applies(self, fault: Fault, batch: Batch) -> bool:
        if fault.step is not None and fault.step == self._step:
            return True
        return fault.token is not None and bool((batch.ids == fault.token).any())


def faults_of(faults: tuple[Fault, ...], executor: int) -> tuple[Fault, ...]:
    """Give those that were ordered for this executor."""
    return tuple(fault for fault in faults if fault.executor in {None, executor})


def _misbehave(fault: Fault) -> None:
    match fault.kind:
        case "raise":
            raise InjectedFault(f"ordered: {fault}")
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(_LONG_S)
        case "spin":
            while True:
                pass
        case "hold_gil":
            # A call through PyDLL keeps the interpreter's lock for as long as it lasts.
            ctypes.PyDLL(None).sleep(_LONG_S)
