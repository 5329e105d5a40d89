"""Tercet in process, as the peers' drivers are: an executor's machine and engine in turn.

    python -m benchmarks.peers.ours none|int8|int4|auto [KV TYPE] [DEVICE] [MODEL]

Planning and sampling are part of every step, as they are when the house serves.
"""

import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version

import threadpoolctl

from benchmarks.models import NAME, cache
from benchmarks.peers.drivers.worker import Peer, Prompt, Ready, work
from benchmarks.rig import Rig
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.choose import choose_device
from tercet.devices.contract import CompileOptions
from tercet.engine.build import build_engine, compile_model, kv_memory
from tercet.models import open_model

SLOTS = 64
KV_TOKENS = 32 * 512


class Ours:
    """Implements `worker.Peer`."""

    def __init__(self, model: str, quantization: str, kv_dtype: str, device_name: str) -> None:
        device = choose_device(device_name)
        threads = len(os.sched_getaffinity(0))
        threadpoolctl.threadpool_limits(limits=threads)
        options = CompileOptions(kv_dtype=kv_dtype, threads=threads)  # type: ignore[arg-type]
        device.check(options)
        opened = open_model(model, cache=cache(), packer=device.packer(), quantization=quantization)
        executable = compile_model(opened, device, options)
        memory = kv_memory(executable, KV_TOKENS // BLOCK_TOKENS)
        engine = build_engine(executable, shape=opened.shape, memory=memory, max_slots=SLOTS)
        self.numerics = device.numerics_id()
        self._rig = Rig(engine, engine.measure(), memory.layout.num_blocks)
        self._next = 1

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        counts = dict.fromkeys([self._submit(prompt, steps + 1) for prompt in prompts], 0)
        wanted = len(prompts) * (steps + 1)
        began, before = 0.0, 0
        while sum(counts.values()) < wanted:
            for message in self._rig.step():
                for update in message.updates:
                    counts[update.task] += len(update.tokens)
            if not began and all(counts.values()):
                began, before = time.perf_counter(), sum(counts.values())
        return (wanted - before) / (time.perf_counter() - began)

    def prefill(self, prompt: Prompt) -> float:
        began = time.perf_counter()
        self._submit(prompt, 1)
        while True:
            for message in self._rig.step():
                if any(update.tokens for update in message.updates):
                    return time.perf_counter() - began

    def _submit(self, prompt: Prompt, max_tokens: int) -> int:
        number, self._next = self._next, self._next + 1
        self._rig.submit(number, tuple(prompt), max_tokens)
        return number


def build() -> tuple[Peer, Ready]:
    """The engine that the command line names, past its first token."""
    defaults = ("auto", "auto", "auto", NAME)
    quantization, kv_dtype, device, model = (*sys.argv[1:], *defaults[len(sys.argv) - 1 :])
    peer = Ours(model, quantization, kv_dtype, device)
    peer.prefill([5])
    return peer, Ready({"tercet": version("tercet")}, peer.numerics)


if __name__ == "__main__":
    work(build)
