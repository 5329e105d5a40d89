"""The worker's end of `benchmarks.side`: commands from standard input."""

import json
import sys
from collections.abc import Mapping
from random import Random
from typing import Protocol


class Program(Protocol):
    """A program under comparison."""

    def open(self, streams: int, context: int) -> None:
        """Begin so many streams with prompts of so many tokens, each past its first token."""
        ...

    def decode(self, steps: int) -> list[float]:
        """Give every open stream so many tokens more; seconds of each step."""
        ...

    def close(self) -> None:
        """Forget the open streams."""
        ...

    def prefill(self, prompt: tuple[int, ...]) -> tuple[float, int]:
        """Read a prompt; seconds until its first token, and the token."""
        ...


def prompt(seed: int, length: int, vocab: int) -> tuple[int, ...]:
    """Random tokens, the same for both programs."""
    rand = Random(seed)
    return tuple(rand.randrange(256, vocab) for _ in range(length))


def answer_all(program: Program, vocab: int) -> None:
    """Carry out commands until there are no more."""
    for line in sys.stdin:
        print(json.dumps(_carry_out(program, json.loads(line), vocab)), flush=True)


def _carry_out(program: Program, command: Mapping[str, int], vocab: int) -> dict[str, object]:
    match command["do"]:
        case "open":
            program.open(command["streams"], command["context"])
            return {}
        case "decode":
            return {"seconds": program.decode(command["steps"])}
        case "close":
            program.close()
            return {}
        case "prefill":
            tokens = prompt(command["seed"], command["tokens"], vocab)
            seconds, token = program.prefill(tokens)
            return {"seconds": [seconds], "token": token}
        case other:
            raise ValueError(f"unknown command {other!r}")
