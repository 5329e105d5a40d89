"""What is asked and when: prompts, lengths and arrival times, all from one seed."""

import gzip
import json
from pathlib import Path
from random import Random

from msgspec import Struct

from tercet.base.errors import Invalid


class BenchRequest(Struct, frozen=True, kw_only=True):
    """One request to send; `at_ns` is None in a closed loop (as soon as a place is free)."""

    prompt: str | tuple[int, ...]
    max_tokens: int
    at_ns: int | None = None


class Lengths(Struct, frozen=True, kw_only=True):
    """Tokens of prompts and outputs: uniform in mean x [1 - spread, 1 + spread]."""

    prompt: int
    output: int
    spread: float = 0.0

    def draw(self, rand: Random) -> tuple[int, int]:
        return _around(self.prompt, self.spread, rand), _around(self.output, self.spread, rand)


def random_requests(
    *,
    count: int,
    lengths: Lengths,
    vocab: int,
    rand: Random,
    shared_prefix: int = 0,
) -> list[BenchRequest]:
    """Prompts of random token ids, which no cache can know unless they share a prefix."""
    prefix = random_tokens(shared_prefix, vocab=vocab, rand=rand)
    requests = []
    for _ in range(count):
        prompt_tokens, output_tokens = lengths.draw(rand)
        rest = random_tokens(max(1, prompt_tokens - shared_prefix), vocab=vocab, rand=rand)
        requests.append(BenchRequest(prompt=prefix + rest, max_tokens=output_tokens))
    return requests


def random_tokens(count: int, *, vocab: int, rand: Random) -> tuple[int, ...]:
    """Token ids that no cache can know.

    The first ids of many vocabularies are controls: they are left out where there is room.
    """
    floor = min(256, vocab // 2)
    return tuple(floor + rand.randrange(vocab - floor) for _ in range(count))


def file_requests(path: Path, *, count: int, output_tokens: int) -> list[BenchRequest]:
    """Prompts from a file: JSON lines with `prompt` (and `max_tokens`), or text by paragraph.

    The file is repeated if it holds fewer than `count`.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}", parameter="dataset") from error
    if not lines:
        raise Invalid(f"{path} holds no prompt", parameter="dataset")
    known = [_parse(line, output_tokens) for line in lines[:count]]
    return [known[index % len(known)] for index in range(count)]


def with_arrivals(
    requests: list[BenchRequest],
    *,
    rate: float,
    burstiness: float,
    rand: Random,
) -> list[BenchRequest]:
    """Give each request its time: gaps of a gamma distribution with mean 1/rate seconds.

    `burstiness` is the shape: 1 is Poisson, below 1 comes in bursts, above 1 is more even.
    """
    at = 0.0
    timed = []
    for request in requests:
        timed.append(
            BenchRequest(
                prompt=request.prompt,
                max_tokens=request.max_tokens,
                at_ns=int(at * 1e9),
            ),
        )
        at += rand.gammavariate(burstiness, 1.0 / (burstiness * rate))
    return timed


def _parse(line: str, output_tokens: int) -> BenchRequest:
    if not line.startswith("{"):
        return BenchRequest(prompt=line, max_tokens=output_tokens)
    try:
        row = json.loads(line)
        prompt = row["prompt"]
        return BenchRequest(
            prompt=tuple(prompt) if isinstance(prompt, list) else str(prompt),
            max_tokens=int(row.get("max_tokens", output_tokens)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(
            f"a line of the data set is no JSON object with 'prompt': {line[:80]!r}",
            parameter="dataset",
        ) from error


def _around(mean: int, spread: float, rand: Random) -> int:
    return max(1, round(mean * (1 + spread * (2 * rand.random() - 1))))
