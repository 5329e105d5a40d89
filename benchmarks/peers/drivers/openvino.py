"""OpenVINO GenAI: `static` (LLMPipeline, one padded batch) or `continuous` (its scheduler)."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.peers.drivers.worker import Peer, Prompt, Ready, work

KV_GB = 2
SEQUENCES = 64
BATCHED_TOKENS = 2048


def scheduling() -> genai.SchedulerConfig:
    """The scheduler's best setting for a few dozen streams."""
    config = genai.SchedulerConfig()
    config.cache_size = KV_GB
    config.max_num_batched_tokens = BATCHED_TOKENS
    config.max_num_seqs = SEQUENCES
    config.dynamic_split_fuse = True
    config.enable_prefix_caching = False
    return config


def generation(num_tokens: int) -> genai.GenerationConfig:
    """Greedy, exactly so many tokens."""
    config = genai.GenerationConfig()
    config.max_new_tokens = num_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


class Piece(Protocol):
    """What came of a request since the last look."""

    generated_ids: Sequence[int]


class Handle(Protocol):
    """What `add_request` gives; the binding does not export its class."""

    def can_read(self) -> bool: ...

    def read(self) -> Mapping[int, Piece]: ...


class Static:
    """`LLMPipeline`: all prompts are one batch; token times are its own metrics."""

    def __init__(self, folder: str) -> None:
        self._pipeline = genai.LLMPipeline(folder, "CPU")

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        times = self._generate(prompts, steps + 1).perf_metrics.raw_metrics.m_new_token_times
        return len(prompts) * (len(times) - 1) / (_seconds(times[-1]) - _seconds(times[0]))

    def prefill(self, prompt: Prompt) -> float:
        began = time.perf_counter()
        self._generate([prompt], 1)
        return time.perf_counter() - began

    def _generate(self, prompts: Sequence[Prompt], num_tokens: int) -> genai.EncodedResults:
        ids = np.array(prompts, np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        return self._pipeline.generate(inputs, generation(num_tokens))


class Continuous:
    """`ContinuousBatchingPipeline`, driven step by step."""

    def __init__(self, folder: str) -> None:
        self._pipeline = genai.ContinuousBatchingPipeline(folder, scheduling(), "CPU", {})
        self._next = 0

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        handles = [self._add(prompt, steps + 1) for prompt in prompts]
        waiting = dict(enumerate(handles))
        counts = [0] * len(handles)
        began, before = 0.0, 0
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for place, handle in list(waiting.items()):
                if handle.can_read():
                    counts[place] += sum(len(one.generated_ids) for one in handle.read().values())
                if counts[place] > steps:
                    del waiting[place]
            if not began and all(counts):
                began, before = time.perf_counter(), sum(counts)
        return (len(prompts) * (steps + 1) - before) / (time.perf_counter() - began)

    def prefill(self, prompt: Prompt) -> float:
        began = time.perf_counter()
        handle = self._add(prompt, 1)  # kept: a request ends with its handle
        while not handle.can_read():
            self._pipeline.step()
        return time.perf_counter() - began

    def _add(self, prompt: Prompt, num_tokens: int) -> "Handle":
        self._next += 1
        ids = openvino.Tensor(np.array([prompt], np.int64))
        return self._pipeline.add_request(self._next, ids, generation(num_tokens))


def build() -> tuple[Peer, Ready]:
    """The pipeline that the command line names, past its first token."""
    folder, mode = sys.argv[1:3]
    peer = Continuous(folder) if mode == "continuous" else Static(folder)
    peer.prefill([5])
    return peer, Ready({"openvino-genai": genai.__version__}, mode)


def _seconds(moment: object) -> float:
    """The binding gives milliseconds as a number."""
    return float(moment) / 1e3  # type: ignore[arg-type]


if __name__ == "__main__":
    work(build)
