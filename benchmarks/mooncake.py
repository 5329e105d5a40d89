"""Traces in Mooncake's form (kvcache-ai/Mooncake, FAST'25), and what is made of them.

One JSON object a line: timestamp (ms), input_length, output_length, hash_ids, one for each 512
tokens of the prompt. Equal ids before equal ids are equal text.
"""

import gzip
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import msgspec

PART_TOKENS = 512
COMMON_SHARE = 0.02
"""A part that more of the requests begin with is a system prompt: it tells no conversations
apart."""


class Line(msgspec.Struct):
    """One request of a trace."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_trace(path: Path, count: int) -> list[Line]:
    """Give the first requests of a .jsonl(.gz)."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        return [msgspec.json.decode(line, type=Line) for line in islice(file, count)]


def conversations(lines: list[Line], every: int) -> list[Line]:
    """Keep every so many-th conversation, whole: a smaller trace in which as much comes again."""
    uses = Counter(part for line in lines for part in line.hash_ids[:2])
    numbers: dict[int, int] = {}
    kept = []
    for line in lines:
        own = (part for part in line.hash_ids if uses[part] <= COMMON_SHARE * len(lines))
        first = next(own, line.hash_ids[0])
        if numbers.setdefault(first, len(numbers)) % every == 0:
            kept.append(line)
    return kept


def skewed(lines: list[Line], *, documents: int = 64, exponent: float = 1.1) -> list[Line]:
    """The same times and lengths, but the first half of each prompt is one of a few documents,
    chosen by Zipf's law.
    """
    rand = Random(7)
    weights = [1 / (rank + 1) ** exponent for rank in range(documents)]
    fresh = 1 << 40
    made = []
    for number, line in enumerate(lines):
        parts = len(line.hash_ids)
        document = rand.choices(range(documents), weights)[0]
        common = [(1 << 30) + document * 10_000 + part for part in range(parts // 2)]
        own = [fresh + number * 1000 + part for part in range(parts - len(common))]
        made.append(
            Line(line.timestamp, line.input_length, line.output_length, hash_ids=common + own)
        )
    return made
