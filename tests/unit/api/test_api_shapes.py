"""The shapes of answers, whole and streamed, and that both say the same."""

import pytest
from api_client import CODEC, COMPLETIONS, Answer, House

from tercet.jobs.job import Failure, FailureCode

USAGE = {
    "prompt_tokens": 6,
    "completion_tokens": 4,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


@pytest.fixture
def house():
    return House()


def texts(events):
    """The text of every choice, put together from events."""
    found = {}
    for event in events:
        for choice in event["choices"]:
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            found[choice["index"]] = found.get(choice["index"], "") + piece
    return found


def finishes(events):
    return {
        choice["index"]: choice["finish_reason"]
        for event in events
        for choice in event["choices"]
        if choice["finish_reason"]
    }


def test_a_completion(house):
    answer = house.complete(max_tokens=4)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    assert body["system_fingerprint"].startswith("fp_")
    assert isinstance(body["created"], int)
    assert body["usage"] == USAGE
    assert body["choices"] == [
        {
            "index": 0,
            "text": "abcd",
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]


def test_a_chat(house):
    body = house.chat(max_tokens=4, ignore_eos=True).json
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "user"[0:3], "refusal": None}
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


def test_a_chat_stream_begins_with_the_role_and_ends_with_the_finish(house):
    answer = house.chat(max_tokens=4, ignore_eos=True, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.events
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    first, *between, last = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(event["choices"][0]["finish_reason"] is None for event in [first, *between])
    assert all("role" not in event["choices"][0]["delta"] for event in [*between, last])
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["delta"] == {}
    assert all("usage" not in event for event in events)
    assert texts(events) == {0: "use"}


def test_a_completion_stream(house):
    events = house.complete(max_tokens=4, stream=True).events
    assert {event["object"] for event in events} == {"text_completion"}
    assert texts(events) == {0: "abcd"}
    assert finishes(events) == {0: "length"}


@pytest.mark.parametrize("kind", ["complete", "chat"])
def test_usage_is_one_last_event_without_choices(house, kind):
    """sglang#954, kubeai#283: usage was null, or in every chunk."""
    fields = {"max_tokens": 4, "stream": True, "ignore_eos": True}
    whole = getattr(house, kind)(max_tokens=4, ignore_eos=True).json["usage"]
    *events, last = getattr(house, kind)(**fields, stream_options={"include_usage": True}).events
    assert last["choices"] == []
    assert last["usage"] == whole
    assert all(event["usage"] is None and event["choices"] for event in events)


@pytest.mark.parametrize("options", [{}, {"include_usage": False}, None])
def test_no_usage_where_none_was_asked_for(house, options):
    """vllm PR#36379: `stream_options: {}` returned usage."""
    events = house.complete(max_tokens=2, stream=True, stream_options=options).events
    assert all("usage" not in event and event["choices"] for event in events)


def test_usage_can_go_along_with_every_event(house):
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = house.complete(max_tokens=4, stream=True, stream_options=options).events
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 4
    assert events[-1]["choices"] == []


def test_every_choice_of_every_prompt_is_there(house):
    """vllm#14280, PR#16863, PR#11898: n > 1 returned one, or ended with the first."""
    fields = {"prompt": ["ab", [99, 100], "e"], "n": 3, "max_tokens": 4}
    body = house.complete(**fields).json
    assert [choice["index"] for choice in body["choices"]] == list(range(9))
    said = [choice["text"] for choice in body["choices"]]
    assert said == ["abab"] * 3 + ["cdcd"] * 3 + ["eeee"] * 3
    assert body["usage"]["prompt_tokens"] == 5
    assert body["usage"]["completion_tokens"] == 36
    events = house.complete(**fields, stream=True).events
    assert texts(events) == dict(enumerate(said))
    assert finishes(events) == dict.fromkeys(range(9), "length")


def test_a_stream_goes_on_after_its_first_choice_ended():
    def script(task, prompt, position):
        del prompt
        return 257 if position == (task & 4095) else 97

    house = House(script=script)
    body = house.complete(n=3, max_tokens=6).json
    assert [choice["text"] for choice in body["choices"]] == ["", "a", "aa"]
    events = house.complete(n=3, max_tokens=6, stream=True).events
    assert texts(events) == {0: "", 1: "a", 2: "aa"}
    assert finishes(events) == {0: "stop", 1: "stop", 2: "stop"}
    roles = house.chat(n=3, max_tokens=6, stream=True).events
    assert sum("role" in e["choices"][0]["delta"] for e in roles if e["choices"]) == 3


@pytest.mark.parametrize("per_piece", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "text", ["日本語のテキスト", "žluťoučký kůň", "👩‍👩‍👧‍👦🏳️‍🌈", 'a\u0000"\\\n\u2028é']
)
def test_no_half_characters_are_streamed(per_piece, text):
    """vllm#8627, exo#1691: replacement characters in the middle of CJK and emoji."""
    house = House(per_piece=per_piece)
    size = len(text.encode())
    assert house.complete(prompt=text, max_tokens=size).json["choices"][0]["text"] == text
    events = house.complete(prompt=text, max_tokens=size, stream=True).events
    assert texts(events) == {0: text}
    assert all("\ufffd" not in event["choices"][0]["text"] for event in events)


def test_a_cut_character_is_one_replacement_at_the_end(house):
    whole = house.complete(prompt="日本", max_tokens=4).json["choices"][0]["text"]
    assert whole == "日\ufffd"
    assert texts(house.complete(prompt="日本", max_tokens=4, stream=True).events) == {0: whole}


def test_token_ids_can_be_returned(house):
    body = house.complete(max_tokens=3, return_token_ids=True).json
    assert body["choices"][0]["token_ids"] == [97, 98, 99]
    assert body["choices"][0]["prompt_token_ids"] == CODEC.encode("abcdef")
    events = house.complete(max_tokens=3, return_token_ids=True, stream=True).events
    assert events[0]["choices"][0]["prompt_token_ids"] == CODEC.encode("abcdef")
    ids = [i for event in events for i in event["choices"][0].get("token_ids", [])]
    assert ids == [97, 98, 99]
    chat = house.chat(max_tokens=3, return_token_ids=True).json
    assert len(chat["choices"][0]["token_ids"]) == 3
    assert len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]


def test_echo_repeats_the_prompt(house):
    for prompt in ("abcdef", CODEC.encode("abcdef")):
        fields = {"prompt": prompt, "echo": True, "max_tokens": 2, "n": 2}
        body = house.complete(**fields).json
        assert [choice["text"] for choice in body["choices"]] == ["abcdefab"] * 2
        assert texts(house.complete(**fields, stream=True).events) == dict.fromkeys(
            (0, 1), "abcdefab"
        )
    body = house.complete(echo=True, max_tokens=0).json
    assert body["choices"][0]["text"] == "abcdef"
    assert body["usage"]["completion_tokens"] == 0


FAILURES = [
    (FailureCode.OVERLOADED, 503),
    (FailureCode.NO_EXECUTOR, 503),
    (FailureCode.SHUTTING_DOWN, 503),
    (FailureCode.EXECUTOR_LOST, 500),
    (FailureCode.NO_ROOM, 400),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("code", "status"), FAILURES)
def test_a_failure_before_the_first_token_is_a_status(code, status, stream):
    for knobs in ({"refusal": Failure(code, "secret detail")}, {"failure": Failure(code, "")}):
        answer = House(**knobs).complete(max_tokens=4, stream=stream)
        assert answer.status == status
        assert answer.error["code"] == code
        assert "secret" not in answer.body.decode()
        assert ("retry-after" in answer.headers) == (status == 503)
        assert ("x-should-retry" in answer.headers) == (code is FailureCode.EXECUTOR_LOST)


def test_every_failure_has_its_row():
    assert {code for code, _ in FAILURES} == set(FailureCode)


def test_a_failure_in_mid_stream_is_an_event_and_the_end():
    """conventions C5; vllm-mlx#101: the mark of the end was sometimes never sent."""
    house = House(failure=Failure(FailureCode.EXECUTOR_LOST, ""), failure_after=2)
    answer = house.complete(max_tokens=4, stream=True, n=2)
    assert answer.status == 200
    assert answer.whole
    *events, last = answer.events
    assert last["error"]["code"] == "executor_lost"
    assert all("error" not in event for event in events)
    assert house.service.cancelled == [house.service.jobs[0].id]
    whole = house.complete(max_tokens=4)
    assert whole.status == 500


def test_answers_have_ids_of_their_own(house):
    ids = {house.complete(max_tokens=1).json["id"] for _ in range(10)}
    assert len(ids) == 10
    assert not ids & {House().complete(max_tokens=1).json["id"]}


def test_the_alias_of_a_model_is_repeated_and_its_name_reaches_the_job(house):
    answer: Answer = house.post(COMPLETIONS, {"model": "tiny-alias", "prompt": "a"})
    assert answer.json["model"] == "tiny-alias"
    assert house.service.jobs[-1].model == "tiny"


def test_defaults_of_max_tokens(house):
    assert house.complete().json["usage"]["completion_tokens"] == 16
    chat = house.chat(ignore_eos=True).json["usage"]
    assert chat["total_tokens"] == 512
