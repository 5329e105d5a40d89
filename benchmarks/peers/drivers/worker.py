"""The worker's end: commands from standard input, one JSON line for each, none of the peer's own.

parent --{"do": "decode", "streams": 8, ...}--> worker --{"tokens_per_s": ...}--> parent
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TextIO

FIRST_ID = 256
VOCAB = 49152
Prompt = list[int]


@dataclass(frozen=True)
class Ready:
    """What a driver tells once it has given a first token."""

    versions: Mapping[str, str]
    setting: str
    """The options that matter, in a few words."""


class Peer(Protocol):
    """A system under comparison, its model loaded."""

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        """Tokens a second of so many more tokens of every stream, prompts not counted."""
        ...

    def prefill(self, prompt: Prompt) -> float:
        """Seconds from the prompt to its first token."""
        ...


def random_prompt(seed: int, length: int) -> Prompt:
    """Random ids, the same for every system."""
    rand = Random(seed)
    return [rand.randrange(FIRST_ID, VOCAB) for _ in range(length)]


def own_output() -> TextIO:
    """Where answers go; from now on what a library prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return kept


def work(build: Callable[[], tuple[Peer, Ready]]) -> None:
    """Build the peer, say so, carry out commands until there are no more."""
    output = own_output()
    peer, ready = build()
    print(
        json.dumps({"ready": dict(ready.versions), "setting": ready.setting, "pid": os.getpid()}),
        file=output,
    )
    for line in sys.stdin:
        print(json.dumps(carry_out(peer, json.loads(line))), file=output)


def carry_out(peer: Peer, command: Mapping[str, int]) -> Mapping[str, float]:
    """The answer to a command; `ValueError` for one that nobody knows."""
    seed = command["seed"]
    match command["do"]:
        case "decode":
            steps = command["steps"]
            length = prompt_length(command["context"], steps)
            prompts = [random_prompt(seed + place, length) for place in range(command["streams"])]
            return {"tokens_per_s": peer.decode(prompts, steps)}
        case "prefill":
            length = command["tokens"]
            return {"tokens_per_s": length / peer.prefill(random_prompt(seed, length))}
        case other:
            raise ValueError(f"unknown command {other!r}")


def prompt_length(context: int, steps: int) -> int:
    """How long prompts are so that the steps' contexts are `context` tokens on the average."""
    return max(1, context - steps // 2)
