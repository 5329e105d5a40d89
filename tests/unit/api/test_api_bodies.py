"""Bodies that are not what they claim: a sentence and a status, never a crash."""

import asyncio

import pytest
from api_client import CHAT, CODEC, COMPLETIONS, CONTEXT, House

from tercet.api.config import ApiConfig
from tercet.api.tokenizing import Tokenizing

GOOD = b'{"model":"tiny","prompt":"abc","max_tokens":1}'
POSTS = [COMPLETIONS, CHAT, "/tokenize", "/detokenize"]

MALFORMED = {
    "empty": b"",
    "text": b"hello",
    "list": b"[1]",
    "string": b'"a"',
    "null": b"null",
    "number": b"1",
    "nan": b'{"model":"tiny","prompt":"a","temperature":NaN}',
    "infinity": b'{"model":"tiny","prompt":"a","temperature":Infinity}',
    "minus infinity": b'{"model":"tiny","prompt":"a","temperature":-Infinity}',
    "overflowing number": b'{"model":"tiny","prompt":"a","temperature":1e999}',
    "endless integer": b'{"model":"tiny","prompt":"a","seed":' + b"9" * 5000 + b"}",
    "cut": b'{"model":"tiny","prompt":"abc',
    "two": b"{}{}",
    "single quotes": b"{'model':'tiny'}",
    "comment": b'{"model":"tiny"/*a*/}',
    "invalid utf-8": b'{"model":"tiny","prompt":"\xff\xfe"}',
    "invalid utf-8 in a key": b'{"model":"tiny","prompt\xc3":"a"}',
    "utf-16": '{"model":"tiny"}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "encoded surrogate": b'{"model":"tiny","prompt":"\xed\xa0\x80"}',
    "high surrogate": b'{"model":"tiny","prompt":"\\ud800"}',
    "high surrogate and text": b'{"model":"tiny","prompt":"\\ud83dabcdefgh"}',
    "low surrogate": b'{"model":"tiny","prompt":"\\udc00 tail"}',
    "surrogates in the wrong order": b'{"model":"tiny","prompt":"\\ude00\\ud83d"}',
    "surrogate in a key": b'{"model":"tiny","\\ud800":"a"}',
    "raw control character": b'{"model":"tiny","prompt":"a\nb"}',
    "deep lists": b'{"model":"tiny","prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"model":"tiny","metadata":' + b'{"a":' * 500 + b"1" + b"}" * 501,
    "just too deep": b'{"model":"tiny","metadata":{"a":' + b"[" * 40 + b"]" * 40 + b"}}",
}


@pytest.fixture(scope="module")
def house():
    return House(ApiConfig(body_bytes_max=1 << 20))


@pytest.mark.parametrize("route", POSTS)
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_refused_on_every_route(house, route, body):
    answer = house.post(route, body)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_json"
    assert len(answer.error["message"]) < 300
    assert not house.service.jobs


def test_sentences_name_what_is_wrong(house):
    assert "UTF-8" in house.post(COMPLETIONS, MALFORMED["invalid utf-8"]).error["message"]
    for name in ("high surrogate", "high surrogate and text", "low surrogate"):
        assert "surrogate" in house.post(COMPLETIONS, MALFORMED[name]).error["message"]
    assert "deep" in house.post(COMPLETIONS, MALFORMED["deep lists"]).error["message"]


@pytest.mark.parametrize("levels", [300, 2000, 100_000])
def test_a_bound_on_depth_beyond_what_can_be_read_is_no_crash(levels):
    house = House(ApiConfig(json_depth_max=200_000, json_parts_max=200_000))
    body = b'{"model":"tiny","unknown":' + b"[" * levels + b"]" * levels + b"}"
    answer = house.post(COMPLETIONS, body)
    assert answer.status == 400
    assert ("deep" in answer.error["message"]) == (levels > 1000)


@pytest.mark.parametrize("slices", [1, 2, 7, 40])
def test_a_body_may_come_in_pieces(slices):
    assert House().post(COMPLETIONS, GOOD, slices=slices).status == 200


@pytest.mark.parametrize("slices", [1, 8])
def test_a_large_body_is_413(house, slices):
    body = b'{"model":"tiny","prompt":"' + b"a" * (1 << 20) + b'"}'
    answer = house.post(COMPLETIONS, body, slices=slices)
    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"


@pytest.mark.parametrize("length", ["99999999999", "9" * 400])
def test_a_large_body_is_refused_before_it_is_read(house, length):
    answer = house.post(COMPLETIONS, GOOD, headers=[("content-length", length)])
    assert answer.status == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_another_content_type_is_415(house, kind):
    answer = house.post(COMPLETIONS, GOOD, headers=[("content-type", kind)])
    assert answer.status == 415
    assert "application/json" in answer.error["message"]


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"]
)
def test_spellings_of_json_are_accepted(kind):
    assert House().post(COMPLETIONS, GOOD, headers=[("content-type", kind)]).status == 200


def test_a_compressed_body_is_refused(house):
    answer = house.post(COMPLETIONS, GOOD, headers=[("content-encoding", "gzip")])
    assert answer.status == 415


def test_a_body_that_never_ends_is_408():
    house = House(ApiConfig(body_timeout_s=0.01))

    async def stall():
        sent = []
        begun = []

        async def receive():
            if not begun:
                begun.append(True)
                return {"type": "http.request", "body": b"{", "more_body": True}
            await asyncio.Event().wait()
            return {}

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "headers": headers}
        await house.app({**scope, "root_path": "", "query_string": b""}, receive, send)
        return sent

    sent = asyncio.run(stall())
    assert sent[0]["status"] == 408


def test_the_last_of_two_equal_keys_counts():
    house = House()
    body = b'{"model":"x","model":"tiny","prompt":"abc","max_tokens":9,"max_tokens":2}'
    assert house.post(COMPLETIONS, body).json["usage"]["completion_tokens"] == 2


def test_a_long_list_of_ids_is_no_depth(house):
    many = House(ApiConfig(json_depth_max=3))
    answer = many.post(COMPLETIONS, {"model": "tiny", "prompt": [[1, 2]] * 50, "max_tokens": 1})
    assert answer.status == 200
    assert len(answer.json["choices"]) == 50


@pytest.mark.parametrize("part", ["[1],", "{},", '{"a":[]},', '"[{\\"}]",[],'])
def test_a_body_of_very_many_parts_is_refused(house, part):
    """Input that kills the server: millions of lists took so long that the front seemed dead."""
    many = (part * 70_000).encode()
    for body in (b'{"model":"tiny","prompt":[' + many + b"[1]]}", b'{"metadata":[' + many + b"1]}"):
        assert "too many parts" in house.post(COMPLETIONS, body).error["message"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{[" * 40_000, '\\"[{' * 30_000, "\\\\" * 40_000 + "[" * 80_000]
)
def test_brackets_in_strings_are_text(text):
    """Code is full of them."""
    house = House(ApiConfig(json_parts_max=100))
    fields = {"prompt": ["a", text], "max_tokens": 1, "model": "tiny"}
    assert house.post(COMPLETIONS, fields).error["code"] == "context_length_exceeded"
    assert house.complete(prompt=text[:500] + "[", max_tokens=1).status == 200


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(house, monkeypatch):
    """Input that kills the server: megabytes of text kept the tokenizer busy for many seconds."""
    monkeypatch.setattr(Tokenizing, "encode", None)
    text = "a" * (4 * CODEC.token_bytes_max * CONTEXT)
    for answer in (house.complete(prompt=text), house.complete(prompt=["a", text])):
        assert answer.error["code"] == "context_length_exceeded"
        assert answer.error["param"] == "prompt"
    answer = house.chat(text)
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.error["param"] == "messages"


def test_very_many_tokens_are_not_detokenized(house):
    few = House(ApiConfig(detokenize_max=10))
    assert few.post("/detokenize", {"tokens": [97] * 10}).json["prompt"] == "a" * 10
    assert few.post("/detokenize", {"tokens": [97] * 11}).error["param"] == "tokens"


def test_a_very_long_text_is_not_tokenized():
    few = House(ApiConfig(tokenize_chars_max=10))
    assert few.post("/tokenize", {"prompt": "a" * 10}).json["count"] == 10
    assert few.post("/tokenize", {"prompt": "a" * 11}).error["param"] == "prompt"
