"""Arrival times and lengths have the distribution that was asked for, from one seed."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tercet.base.errors import Invalid
from tercet.bench.workload import Lengths, file_requests, random_requests, with_arrivals


def test_same_seed_same_workload() -> None:
    lengths = Lengths(prompt=20, output=5, spread=0.5)
    first = random_requests(count=10, lengths=lengths, vocab=1000, rand=Random(3))
    assert first == random_requests(count=10, lengths=lengths, vocab=1000, rand=Random(3))
    assert first != random_requests(count=10, lengths=lengths, vocab=1000, rand=Random(4))


def test_lengths_stay_within_their_spread() -> None:
    lengths = Lengths(prompt=100, output=40, spread=0.25)
    requests = random_requests(count=300, lengths=lengths, vocab=500, rand=Random(1))
    prompts = [len(request.prompt) for request in requests]
    assert min(prompts) >= 75
    assert max(prompts) <= 125
    assert abs(sum(prompts) / 300 - 100) < 4
    assert all(0 <= token < 500 for request in requests for token in request.prompt)


def test_a_shared_prefix_is_shared() -> None:
    lengths = Lengths(prompt=32, output=4)
    requests = random_requests(
        count=4, lengths=lengths, vocab=5000, rand=Random(1), shared_prefix=16
    )
    assert len({request.prompt[:16] for request in requests}) == 1
    assert len({request.prompt for request in requests}) == 4


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0)])
def test_arrivals_have_the_rate_and_the_variation(burstiness: float, variation: float) -> None:
    requests = random_requests(
        count=4000, lengths=Lengths(prompt=1, output=1), vocab=50, rand=Random(1)
    )
    timed = with_arrivals(requests, rate=10.0, burstiness=burstiness, rand=Random(2))
    times = [request.at_ns or 0 for request in timed]
    gaps = [(b - a) / 1e9 for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert times[0] == 0
    assert mean == pytest.approx(0.1, rel=0.1)
    assert deviation / mean == pytest.approx(variation, rel=0.2)


def test_a_file_gives_prompts_and_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "a", "max_tokens": 3}) + "\nplain text\n")
    requests = file_requests(path, count=3, output_tokens=9)
    assert [(request.prompt, request.max_tokens) for request in requests] == [
        ("a", 3),
        ("plain text", 9),
        ("a", 3),
    ]


@pytest.mark.parametrize("text", ["", '{"no": "prompt"}', "{broken"])
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(Invalid):
        file_requests(path, count=1, output_tokens=1)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot read"):
        file_requests(tmp_path / "absent", count=1, output_tokens=1)
