"""Our side of the throughput comparison: an executor's machine and engine, set up as it does it.

As `runtime.executor` does: BLAS begins with one thread (the environment) and gets the cores by
`threadpoolctl`; KV lives in an arena of shared memory; step costs are measured before serving.
"""

import os
import time

import threadpoolctl

from benchmarks.answering import answer_all, prompt
from benchmarks.models import opened
from benchmarks.rig import Rig
from tercet.devices.reference import ReferenceDevice
from tercet.engine.build import build_engine, compile_model, kv_memory

NUM_BLOCKS = 1200
SLOTS = 32


class Ours:
    """Implements `answering.Program`."""

    def __init__(self) -> None:
        model = opened()
        threadpoolctl.threadpool_limits(limits=os.cpu_count())
        executable = compile_model(model, ReferenceDevice())
        memory = kv_memory(executable, NUM_BLOCKS)
        engine = build_engine(executable, shape=model.shape, memory=memory, max_slots=SLOTS)
        self.vocab = model.shape.vocab
        self._rig = Rig(engine, engine.measure(), memory.layout.num_blocks)
        self._next = 1
        self._open: list[int] = []

    def open(self, streams: int, context: int) -> None:
        self._open = list(range(self._next, self._next + streams))
        self._next += streams
        for number in self._open:
            self._rig.submit(number, prompt(number, context, self.vocab), 4096)
        waiting = set(self._open)
        while waiting:
            for message in self._rig.step():
                waiting -= {update.task for update in message.updates if update.tokens}

    def decode(self, steps: int) -> list[float]:
        """A step is over when the streams have gained a token each, on the average: if its costs
        were measured while other programs ran, the planner may take several turns for that.
        """
        seconds: list[float] = []
        gained, began = 0, time.perf_counter()
        while len(seconds) < steps:
            for message in self._rig.step():
                gained += sum(len(update.tokens) for update in message.updates)
            if gained >= len(self._open):
                gained -= len(self._open)
                now = time.perf_counter()
                seconds.append(now - began)
                began = now
        return seconds

    def close(self) -> None:
        for number in self._open:
            self._rig.cancel(number)
        self._open = []
        while self._rig.machine.scheduler.flights:
            self._rig.step()

    def prefill(self, prompt: tuple[int, ...]) -> tuple[float, int]:
        number, self._next = self._next, self._next + 1
        began = time.perf_counter()
        self._rig.submit(number, prompt, 1)
        while True:
            for message in self._rig.step():
                for update in message.updates:
                    if update.tokens:
                        return time.perf_counter() - began, update.tokens[0]


if __name__ == "__main__":
    ours = Ours()
    answer_all(ours, ours.vocab)
