"""A trace keeps its times and lengths; what is none is refused in a sentence."""

import gzip
from pathlib import Path
from random import Random

import pytest

from tercet.base.errors import Invalid
from tercet.bench.posting import Origin
from tercet.bench.traces import Replay, trace_requests

ROWS = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:48.1805900,9000,109
2023-11-16 18:15:51.2224670,0,55
"""


def play(path: Path, **replay):
    return trace_requests(path, Replay(**{"count": 10} | replay), vocab=1000, rand=Random(1))


@pytest.fixture(params=["trace.csv", "trace.csv.gz"])
def trace(request, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(ROWS.encode()) if path.suffix == ".gz" else ROWS.encode())
    return path


def test_times_and_lengths(trace: Path) -> None:
    requests = play(trace)
    assert [request.at_ns for request in requests] == [0, 1_500_000_000, 4_541_877_000]
    assert [len(request.prompt) for request in requests] == [374, 9000, 1]
    assert [request.max_tokens for request in requests] == [44, 109, 55]
    assert all(token < 1000 for request in requests for token in request.prompt)


def test_speed_count_and_context(trace: Path) -> None:
    requests = play(trace, count=2, speed=2.0, context_max=4096)
    assert [request.at_ns for request in requests] == [0, 750_000_000]
    assert [len(request.prompt) + request.max_tokens for request in requests] == [418, 4096]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,2\n", "none of a trace"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46\n", "none of a trace"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(Invalid, match=sentence):
        play(path)


@pytest.mark.parametrize("name", ["missing.csv", "cut.csv.gz", "text.csv.gz"])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    if name == "cut.csv.gz":
        (tmp_path / name).write_bytes(gzip.compress(ROWS.encode())[:-12])
    if name == "text.csv.gz":
        (tmp_path / name).write_text(ROWS)
    with pytest.raises(Invalid, match="cannot read"):
        play(tmp_path / name)


def test_origins() -> None:
    assert Origin.of("http://[::1]:80/base/").authority == "[::1]:80"
    assert Origin.of("https://host/v2/") == Origin("host", 443, "/v2", secure=True)
    for url in ("host:8000", "ftp://host", "http://", "http://host:port", "http://h:99999"):
        with pytest.raises(Invalid, match="no URL of a server"):
            Origin.of(url)
