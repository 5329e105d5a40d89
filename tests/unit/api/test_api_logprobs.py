"""Log-probabilities in both forms, streamed and whole, with echo and over half characters."""

import math

import pytest
from api_client import CODEC, House

from tercet.api.logprobs import (
    Entry,
    chat_content,
    completion_logprobs,
    finite,
    name_of,
    prompt_table,
)
from tercet.jobs.job import Finish, TaskOutput, TokenLogprobs


@pytest.fixture
def house():
    return House(per_piece=2)


def test_a_completion_shows_four_lists(house):
    shown = house.complete(max_tokens=3, logprobs=2).json["choices"][0]["logprobs"]
    assert shown["tokens"] == ["a", "b", "c"]
    assert shown["token_logprobs"] == [-0.7] * 3
    assert shown["text_offset"] == [0, 1, 2]
    assert [len(top) for top in shown["top_logprobs"]] == [2, 2, 2]
    assert shown["top_logprobs"][0]["a"] == -0.7


def test_a_chosen_token_outside_the_best_is_shown_with_them():
    entry = Entry(97, 0, TokenLogprobs(97, -5.0, 9, ((98, -0.1), (99, -0.2))))
    shown = completion_logprobs(CODEC, [entry], num_top=2)
    assert shown["top_logprobs"] == [{"b": -0.1, "c": -0.2, "a": -5.0}]
    content = chat_content(CODEC, [entry], num_top=1)
    assert [top["token"] for top in content[0]["top_logprobs"]] == ["b"]
    assert content[0]["logprob"] == -5.0


@pytest.mark.parametrize("stream", [False, True])
def test_streamed_and_whole_say_the_same(house, stream):
    fields = {"max_tokens": 5, "logprobs": 1, "stop": "zz"}
    whole = house.complete(**fields).json["choices"][0]["logprobs"]
    joined = {name: [] for name in whole}
    for event in house.complete(**fields, stream=True).events:
        for name, values in (event["choices"][0]["logprobs"] or {}).items():
            joined[name] += values
    assert joined == whole
    chat = {"max_tokens": 5, "logprobs": True, "top_logprobs": 1, "ignore_eos": True}
    content = house.chat(**chat).json["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    events = house.chat(**chat, stream=True).events
    pieces = [event["choices"][0]["logprobs"] for event in events]
    assert [entry for piece in pieces if piece for entry in piece["content"]] == content


def test_there_is_one_entry_for_each_token_counted(house):
    """Tokens without text (half characters, an end id) and stop strings count like any other."""
    for fields in ({"prompt": "日本"}, {"stop": "cd"}, {"prompt": [97, 259]}):
        body = house.complete(max_tokens=5, logprobs=0, **fields).json
        shown = body["choices"][0]["logprobs"]
        assert len(shown["tokens"]) == body["usage"]["completion_tokens"]
        assert all(len(top) == 1 for top in shown["top_logprobs"])


def test_half_characters_are_told_apart(house):
    shown = house.complete(prompt="日本", max_tokens=6, logprobs=0).json["choices"][0]["logprobs"]
    assert shown["tokens"][:3] == ["bytes:\\xe6", "bytes:\\x97", "bytes:\\xa5"]
    assert shown["text_offset"] == [0, 0, 0, 1, 1, 1]
    chat = house.chat("日", max_tokens=300, logprobs=True, ignore_eos=True).json
    entries = chat["choices"][0]["logprobs"]["content"]
    assert [0xE6] in [entry["bytes"] for entry in entries]
    data = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert "日" in data.decode("utf-8", "replace")


def test_no_logprobs_where_none_were_asked_for(house):
    assert house.complete(max_tokens=2).json["choices"][0]["logprobs"] is None
    assert house.chat(max_tokens=2, logprobs=False).json["choices"][0]["logprobs"] is None
    body = house.chat(max_tokens=2, logprobs=True).json
    assert body["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


@pytest.mark.parametrize("max_tokens", [0, 2])
def test_echo_shows_the_prompt_too(house, max_tokens):
    fields = {"echo": True, "logprobs": 1, "max_tokens": max_tokens, "n": 2}
    body = house.complete(prompt="abé", **fields).json
    assert house.service.jobs[-1].sampling.prompt_logprobs == 1
    for choice in body["choices"]:
        shown = choice["logprobs"]
        assert choice["text"] == "abé" + "ab"[:max_tokens]
        assert len(shown["tokens"]) == 4 + max_tokens
        assert shown["token_logprobs"][0] is None
        assert shown["top_logprobs"][0] is None
        assert None not in shown["token_logprobs"][1:]
        assert shown["text_offset"] == [0, 1, 2, 2, 3, 4][: 4 + max_tokens]
    events = house.complete(prompt="abé", **fields, stream=True).events
    for index in (0, 1):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        tokens = [t for choice in mine if choice["logprobs"] for t in choice["logprobs"]["tokens"]]
        assert tokens == body["choices"][index]["logprobs"]["tokens"]


def test_prompt_logprobs_in_the_form_of_vllm(house):
    body = house.complete(prompt="abc", max_tokens=1, prompt_logprobs=1).json
    table = body["choices"][0]["prompt_logprobs"]
    assert table[0] is None
    assert table[1]["98"] == {"logprob": -0.7, "rank": 1, "decoded_token": "b"}
    assert len(table) == 3
    chat = house.chat(max_tokens=1, prompt_logprobs=0).json
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    assert house.complete(prompt_logprobs=0, stream=True).status == 400


def test_json_has_no_infinity():
    assert finite(-math.inf) == -9999.0
    assert finite(math.nan) == -9999.0
    entry = TokenLogprobs(97, -math.inf, 5, ((98, 0.0), (99, -math.inf)))
    assert chat_content(CODEC, [Entry(97, 0, entry)], num_top=2)[0]["logprob"] == -9999.0
    row = prompt_table(CODEC, [entry])[0]
    assert row["99"]["logprob"] == -9999.0
    assert row["97"]["rank"] == 5


def test_every_byte_has_a_name_of_its_own():
    assert len({name_of(CODEC, byte) for byte in range(256)}) == 256


def test_a_prompt_that_is_told_of_twice_is_shown_once():
    """A task whose executor died before its first token begins anew."""
    house = House()
    guess = (None, *(TokenLogprobs(token, -1.0, 1) for token in b"bc"))

    def submit(job, sink):
        task = job.id << 12
        sink(TaskOutput(task=task, prompt_logprobs=guess[:2], cached_tokens=2))
        sink(TaskOutput(task=task, prompt_logprobs=guess, cached_tokens=99))
        sink(TaskOutput(task=task, tokens=(97,), finish=Finish.LENGTH, cached_tokens=1))

    house.service.submit = submit
    body = house.complete(prompt="abc", max_tokens=1, prompt_logprobs=0).json
    assert len(body["choices"][0]["prompt_logprobs"]) == 3
    assert body["choices"][0]["prompt_logprobs"][0] is None
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
