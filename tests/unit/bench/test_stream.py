"""An answer is read the same however its bytes are cut, and never called good if it is not."""

import json

import pytest

from tercet.bench.stream import EventStream, refusal

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def chunk(text: str, finish: str | None = None, **more) -> bytes:
    body = {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


GOOD = (
    chunk("a")
    + b": a comment\n\n"
    + chunk("b", "length")
    + b"data: "
    + json.dumps({"choices": [], "usage": USAGE}).encode()
    + b"\n\ndata: [DONE]\n\n"
)


def read(body: bytes, size: int) -> EventStream:
    stream = EventStream()
    for at in range(0, len(body), size):
        stream.feed(body[at : at + size], at)
    return stream


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_any_cut_reads_the_same(size: int, line_end: bytes) -> None:
    stream = read(GOOD.replace(b"\n", line_end), size)
    assert stream.error is None
    assert len(stream.arrivals) == 2
    assert stream.arrivals == sorted(stream.arrivals)
    assert stream.usage == USAGE


def test_a_cut_stream_is_no_good_one() -> None:
    assert read(GOOD[:-3], 50).error == "stream was cut"
    assert read(chunk("a") + b"data: [DONE]\n\n", 50).error == "no finish reason"


def test_an_error_event_is_named() -> None:
    event = {"error": {"code": "executor_lost", "message": "It died."}}
    stream = read(chunk("a") + b"data: " + json.dumps(event).encode() + b"\n\n", 20)
    assert stream.error == "error in stream: executor_lost: It died."


@pytest.mark.parametrize("payload", [b"{", b"[1]", b'{"choices": 3}', b'{"choices": ["x"]}'])
def test_nonsense_is_an_error(payload: bytes) -> None:
    stream = read(b"data: " + payload + b"\n\n" + GOOD, 1000)
    assert stream.error == "an event that is no chunk"


def test_tokens_without_text_still_arrive() -> None:
    stream = read(chunk("") + chunk("", "stop") + b"data: [DONE]\n\n", 1000)
    assert stream.error is None
    assert len(stream.arrivals) == 1


def test_a_refusal_is_named_by_code_and_sentence() -> None:
    body = {"error": {"code": "invalid_value", "message": "n is 0."}}
    assert refusal(400, json.dumps(body).encode()) == "HTTP 400 invalid_value: n is 0."
    assert refusal(502, b"<html>") == "HTTP 502"
    assert refusal(500, b"[]") == "HTTP 500"
