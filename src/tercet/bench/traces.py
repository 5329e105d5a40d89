"""Recorded arrival times and lengths as a workload; the prompts are made up: none were published.

Reads the Azure LLM inference traces of 2023 (Patel et al., "Splitwise", ISCA 2024; CC-BY): CSV with
TIMESTAMP, ContextTokens, GeneratedTokens, plain or .gz.
"""

import csv
import gzip
from datetime import datetime
from itertools import islice
from pathlib import Path
from random import Random

from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.bench.workload import BenchRequest, random_tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class Replay(Struct, frozen=True, kw_only=True):
    """How a trace is played."""

    count: int
    """So many requests from its beginning; fewer if it is shorter."""
    speed: float = 1.0
    """Times pass so many times faster."""
    context_max: int | None = None
    """Longer requests are cut to it: the prompt gives way to the output."""


def trace_requests(path: Path, replay: Replay, *, vocab: int, rand: Random) -> list[BenchRequest]:
    """Requests with the trace's times, from 0 on, and lengths; `Invalid` names what is wrong."""
    opener = gzip.open if path.suffix == ".gz" else open
    requests: list[BenchRequest] = []
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise Invalid(f"{path} has no column {missing[0]}", parameter="trace")
            first: datetime | None = None
            for row in islice(rows, replay.count):
                at, prompt, output = _read(row, path)
                first = at if first is None else first
                prompt, output = _fit(prompt, output, replay.context_max)
                requests.append(
                    BenchRequest(
                        prompt=random_tokens(prompt, vocab=vocab, rand=rand),
                        max_tokens=output,
                        at_ns=int((at - first).total_seconds() * 1e9 / replay.speed),
                    )
                )
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise Invalid(f"cannot read {path}: {error}", parameter="trace") from error
    if not requests:
        raise Invalid(f"{path} holds no request", parameter="trace")
    return requests


def _read(row: dict[str, str], path: Path) -> tuple[datetime, int, int]:
    try:
        # Seven digits after the point are one more than Python's clock has.
        at = datetime.fromisoformat(row["TIMESTAMP"][:26])
        return at, max(1, int(row["ContextTokens"])), max(1, int(row["GeneratedTokens"]))
    except (ValueError, TypeError) as error:
        raise Invalid(
            f"{path} holds a row that is none of a trace: {row}", parameter="trace"
        ) from error


def _fit(prompt: int, output: int, context_max: int | None) -> tuple[int, int]:
    if context_max is None:
        return prompt, output
    output = min(output, context_max - 1)
    return min(prompt, context_max - output), output
