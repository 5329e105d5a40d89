"""The other side of the throughput comparison: transformers, float32, eager attention."""

import os
import time

import torch
from transformers import DynamicCache

from benchmarks.answering import answer_all, prompt
from benchmarks.peer_model import load


class Theirs:
    """Implements `answering.Program` with one padded-free batch: all streams are equally long."""

    def __init__(self) -> None:
        torch.set_num_threads(os.cpu_count() or 1)
        self._model = load()
        self.vocab = int(self._model.config.vocab_size)
        self._next = 1

    @torch.inference_mode()
    def open(self, streams: int, context: int) -> None:
        ids = [prompt(self._next + index, context, self.vocab) for index in range(streams)]
        self._next += streams
        self._cache = DynamicCache(config=self._model.config)
        self._advance(torch.tensor(ids))

    @torch.inference_mode()
    def decode(self, steps: int) -> list[float]:
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self._advance(self._ids)
            self._ids.tolist()
            seconds.append(time.perf_counter() - began)
        return seconds

    def close(self) -> None:
        del self._cache

    @torch.inference_mode()
    def prefill(self, prompt: tuple[int, ...]) -> tuple[float, int]:
        began = time.perf_counter()
        output = self._model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
        token = int(output.logits[0, -1].argmax())
        return time.perf_counter() - began, token

    def _advance(self, ids: torch.Tensor) -> None:
        output = self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._ids = output.logits[:, -1:].argmax(-1)


if __name__ == "__main__":
    theirs = Theirs()
    answer_all(theirs, theirs.vocab)
