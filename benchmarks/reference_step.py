"""One step of the reference device beside transformers, each side in a process of its own.

python benchmarks/reference_step.py [--rounds 3] [--steps 8]

The sides take turns, so that both see the same machine; a round's value is its median step. Both
run SmolLM2's weights in float32 (transformers with eager attention) on all cores. Ours is the
device alone; `benchmarks.throughput` measures the whole executor.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

CONTEXT = 284
PREFILL = 1024
STREAMS = (1, 8, 32)
VOCAB = 49152


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--side", choices=sorted(SIDES))
    arguments = parser.parse_args()
    if arguments.side:
        serve(SIDES[arguments.side]())
        return
    children = {side: _start(side) for side in ("tercet", "transformers")}
    print(f"{'tokens/s':<14}{'tercet':>10}{'transformers':>14}{'ratio':>8}")
    for streams in STREAMS:
        found: dict[str, list[float]] = {side: [] for side in children}
        for child in children.values():
            _ask(child, {"open": streams})
            _ask(child, {"decode": 2})
        for _ in range(arguments.rounds):
            for side, child in children.items():
                found[side].append(streams / median(_ask(child, {"decode": arguments.steps})))
        _show(f"{streams} streams", found)
    found = {side: [] for side in children}
    for _ in range(arguments.rounds):
        for side, child in children.items():
            found[side].append(PREFILL / _ask(child, {"prefill": PREFILL})[0])
    _show(f"prefill {PREFILL}", found)
    for child in children.values():
        child.communicate()


def serve(side: "Tercet | Transformers") -> None:
    """Answer each line of input with the seconds that it took."""
    orders: dict[str, Callable[[int], list[float]]] = {
        "open": side.open,
        "decode": side.decode,
        "prefill": side.prefill,
    }
    for line in sys.stdin:
        ((order, number),) = json.loads(line).items()
        print(json.dumps(orders[order](number)), flush=True)


class Tercet:
    """The reference device over a model image, its KV blocks in shuffled order."""

    def __init__(self) -> None:
        from benchmarks.models import opened
        from tercet.devices.direct import Direct, Sequence
        from tercet.devices.reference import ReferenceDevice

        model = opened()
        executable = ReferenceDevice().compile(model.program, model.weights())
        self._direct = Direct(executable, 32 * 40 + PREFILL // 16)
        self._sequences: list[Sequence] = []
        self._new = Sequence

    def open(self, streams: int) -> list[float]:
        for sequence in self._sequences:
            self._direct.close(sequence)
        self._sequences = [self._new() for _ in range(streams)]
        for number, sequence in enumerate(self._sequences):
            self._direct.run([(sequence, prompt(number, CONTEXT))])
        return []

    def decode(self, steps: int) -> list[float]:
        ids = prompt(99, len(self._sequences))
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            work = [(one, [token]) for one, token in zip(self._sequences, ids, strict=True)]
            ids = self._direct.run(work).tokens.tolist()
            seconds.append(time.perf_counter() - began)
        return seconds

    def prefill(self, tokens: int) -> list[float]:
        sequence, ids = self._new(), prompt(tokens, tokens)
        began = time.perf_counter()
        for start in range(0, tokens, 512):
            self._direct.run([(sequence, ids[start : start + 512])])
        seconds = time.perf_counter() - began
        self._direct.close(sequence)
        return [seconds]


class Transformers:
    """LlamaForCausalLM over the same checkpoint, eager attention, a DynamicCache."""

    def __init__(self) -> None:
        import torch
        from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

        from benchmarks.models import opened
        from tercet.models.sources import open_checkpoint

        location = opened().location
        shape, checkpoint = opened().shape, open_checkpoint(location)
        config = LlamaConfig(
            vocab_size=shape.vocab,
            hidden_size=shape.hidden,
            intermediate_size=shape.ffn,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            max_position_embeddings=shape.context_max,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
        self._torch, self._cache_type, self._config = torch, DynamicCache, config
        self._model = LlamaForCausalLM(config).eval()
        state = {
            name: torch.from_numpy(checkpoint.read(name).copy())
            for name in checkpoint.tensor_names()
        }
        self._model.load_state_dict(state, strict=False)

    def open(self, streams: int) -> list[float]:
        self._cache = self._cache_type(config=self._config)
        self._ids = self._next([prompt(number, CONTEXT) for number in range(streams)])
        return []

    def decode(self, steps: int) -> list[float]:
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self._ids = self._next(self._ids)
            seconds.append(time.perf_counter() - began)
        return seconds

    def prefill(self, tokens: int) -> list[float]:
        self._cache = self._cache_type(config=self._config)
        began = time.perf_counter()
        self._next([prompt(tokens, tokens)])
        return [time.perf_counter() - began]

    def _next(self, ids: list[list[int]]) -> list[list[int]]:
        with self._torch.inference_mode():
            answer = self._model(
                self._torch.tensor(ids),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
            found: list[list[int]] = answer.logits[:, -1:].argmax(-1).tolist()
            return found


SIDES: dict[str, Callable[[], "Tercet | Transformers"]] = {
    "tercet": Tercet,
    "transformers": Transformers,
}


def prompt(seed: int, count: int) -> list[int]:
    import random

    return [random.Random(f"{seed} {index}").randrange(VOCAB) for index in range(count)]


def _start(side: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.reference_step", "--side", side],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(child: "subprocess.Popen[str]", order: dict[str, int]) -> list[float]:
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a side without pipes")
    child.stdin.write(json.dumps(order) + "\n")
    child.stdin.flush()
    answer: list[float] = json.loads(child.stdout.readline())
    return answer


def _show(name: str, found: dict[str, list[float]]) -> None:
    mine, other = (median(found[side]) for side in ("tercet", "transformers"))
    ratio = median(a / b for a, b in zip(found["tercet"], found["transformers"], strict=True))
    print(f"{name:<14}{mine:>10.1f}{other:>14.1f}{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
