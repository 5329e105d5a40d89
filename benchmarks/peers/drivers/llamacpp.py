"""llama.cpp by its C interface: batches of any number of sequences, and requantizing.

    python -m benchmarks.peers.drivers.llamacpp FILE.gguf extra|plain
    python -m benchmarks.peers.drivers.llamacpp FILE.gguf quantize TARGET.gguf q8_0|q4_0|bf16

`extra` uses its buffers of repacked weights (`use_extra_bufts`): faster on AVX-512; with AMX they
crash on this model.
"""

import ctypes
import os
import sys
import time
from collections.abc import Sequence

import llama_cpp as lib
from numpy.ctypeslib import as_array

from benchmarks.peers.drivers.worker import Peer, Prompt, Ready, work

SEQUENCES = 32
CONTEXT_MAX = 512
BATCH, MICRO_BATCH = 2048, 512
FORMATS = {
    "q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0,
    "bf16": lib.LLAMA_FTYPE_MOSTLY_BF16,
}


class Llama:
    """A model, and a context with KV for all streams."""

    def __init__(self, path: str, *, extra: bool) -> None:
        lib.llama_backend_init()
        model_options = lib.llama_model_default_params()
        model_options.use_extra_bufts = extra
        self._model = lib.llama_model_load_from_file(path.encode(), model_options)
        threads = len(os.sched_getaffinity(0))
        options = lib.llama_context_default_params()
        options.n_ctx, options.n_seq_max = SEQUENCES * CONTEXT_MAX, SEQUENCES
        options.n_batch, options.n_ubatch = BATCH, MICRO_BATCH
        options.n_threads = options.n_threads_batch = threads
        options.kv_unified = False
        self._many = lib.llama_init_from_model(self._model, options)
        options.n_ctx, options.n_seq_max = 8 * CONTEXT_MAX, 1
        self._one = lib.llama_init_from_model(self._model, options)
        self._vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        context = self._many if len(prompts) > 1 else self._one
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        ids = []
        for place, prompt in enumerate(prompts):
            ids += self._run(
                context, [(place, position, token) for position, token in enumerate(prompt)]
            )
        length = len(prompts[0])
        began = time.perf_counter()
        for step in range(steps):
            rows = [(place, length + step, token) for place, token in enumerate(ids)]
            ids = self._run(context, rows, every_row=True)
        return len(prompts) * steps / (time.perf_counter() - began)

    def prefill(self, prompt: Prompt) -> float:
        lib.llama_memory_clear(lib.llama_get_memory(self._one), True)
        rows = [(0, position, token) for position, token in enumerate(prompt)]
        began = time.perf_counter()
        for at in range(0, len(rows), BATCH):
            self._run(self._one, rows[at : at + BATCH])
        return time.perf_counter() - began

    def _run(
        self, context: object, rows: Sequence[tuple[int, int, int]], *, every_row: bool = False
    ) -> list[int]:
        """Compute (sequence, position, id)s; the best next ids of all rows, or of the last."""
        batch = lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for place, (sequence, position, token) in enumerate(rows):
            batch.token[place], batch.pos[place] = token, position
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
            batch.logits[place] = every_row or place == len(rows) - 1
        status = lib.llama_decode(context, batch)
        lib.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode gave {status}")
        wanted = range(len(rows)) if every_row else [len(rows) - 1]
        return [self._best(lib.llama_get_logits_ith(context, place)) for place in wanted]

    def _best(self, logits: object) -> int:
        """Greedy choice, by NumPy: what any caller in Python would do."""
        return int(as_array(logits, shape=(self._vocab,)).argmax())


def quantize(source: str, target: str, name: str) -> None:
    """Write the file in another format, from whatever it holds."""
    options = lib.llama_model_quantize_default_params()
    options.allow_requantize = True
    options.ftype = FORMATS[name]
    options.nthread = len(os.sched_getaffinity(0))
    status = lib.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(options))
    if status:
        raise RuntimeError(f"llama_model_quantize gave {status}")


def build() -> tuple[Peer, Ready]:
    """The model that the command line names, past its first token."""
    path, mode = sys.argv[1:3]
    peer = Llama(path, extra=mode == "extra")
    peer.prefill([5])
    return peer, Ready({"llama-cpp-python": lib.__version__}, f"{mode} buffers")


if __name__ == "__main__":
    if sys.argv[2] == "quantize":
        quantize(sys.argv[1], *sys.argv[3:5])
    else:
        work(build)
