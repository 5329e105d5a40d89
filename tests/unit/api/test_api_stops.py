"""Stop strings and stop tokens: the same cut, the same counts, streamed or whole."""

import pytest
from api_client import House

TEXT = "one, two; three|four"


def both(house, **fields):
    """(text, finish, reason, completion tokens) of the whole and of the stream."""
    whole = house.complete(prompt=TEXT, **fields).json
    choice = whole["choices"][0]
    one = (
        choice["text"],
        choice["finish_reason"],
        choice["stop_reason"],
        whole["usage"]["completion_tokens"],
    )
    *events, usage = house.complete(
        prompt=TEXT, **fields, stream=True, stream_options={"include_usage": True}
    ).events
    choices = [event["choices"][0] for event in events]
    two = (
        "".join(choice["text"] for choice in choices),
        choices[-1]["finish_reason"],
        choices[-1]["stop_reason"],
        usage["usage"]["completion_tokens"],
    )
    assert sum(choice["finish_reason"] is not None for choice in choices) == 1
    return one, two


CASES = [
    ({"stop": ", t"}, ("one", "stop", ", t", 6)),
    ({"stop": "two"}, ("one, ", "stop", "two", 8)),
    ({"stop": ["zzz", "; "]}, ("one, two", "stop", "; ", 10)),
    ({"stop": ["three|four five", "three|f"]}, ("one, two; ", "stop", "three|f", 17)),
    ({"stop": "one"}, ("", "stop", "one", 3)),
    ({"stop": "zzz"}, (TEXT, "length", None, 20)),
    ({"stop": "four and more"}, (TEXT, "length", None, 20)),
    ({"stop": ["two", "wo;"]}, ("one, ", "stop", "two", 8)),
    ({"stop": "; ", "include_stop_str_in_output": True}, ("one, two; ", "stop", "; ", 10)),
    ({"stop_token_ids": [ord("t")]}, ("one, ", "stop", ord("t"), 6)),
    (
        {"stop_token_ids": [ord("t")], "include_stop_str_in_output": True},
        ("one, t", "stop", ord("t"), 6),
    ),
    ({"stop_token_ids": [ord("t")], "min_tokens": 8}, ("one, two; ", "stop", ord("t"), 11)),
    ({"stop": "o", "min_tokens": 5}, ("one, tw", "stop", "o", 8)),
    ({"stop": "four"}, ("one, two; three|", "stop", "four", 20)),
]


@pytest.mark.parametrize("per_piece", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(("fields", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_stops_cut_the_same_streamed_or_whole(fields, expected, per_piece):
    """vllm#2577: a stop string that spans tokens worked only without streaming; vllm#57052."""
    house = House(per_piece=per_piece)
    one, two = both(house, max_tokens=20, **fields)
    assert one == expected
    assert two == expected


def test_the_service_learns_of_a_stop_string_once():
    house = House()
    house.complete(prompt=TEXT, stop="two", max_tokens=20, n=2)
    job = house.service.jobs[0]
    assert house.service.stopped == [job.id << 12, (job.id << 12) + 1]
    assert not house.service.cancelled
    assert house.service.num_running == 0
    house.complete(prompt=TEXT, stop="zzz", max_tokens=20)
    assert len(house.service.stopped) == 2


def test_an_end_id_is_counted_and_not_shown():
    def script(task, prompt, position):
        del task, prompt
        return [97, 259][position]

    house = House(script=script)
    body = house.complete(max_tokens=5).json
    assert body["choices"][0]["text"] == "a"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["stop_reason"] is None
    assert body["usage"]["completion_tokens"] == 2
    shown = house.complete(max_tokens=5, skip_special_tokens=False).json
    assert shown["choices"][0]["text"] == "a"
    kept = house.complete(
        max_tokens=5, skip_special_tokens=False, include_stop_str_in_output=True
    ).json
    assert kept["choices"][0]["text"] == "a<|im_end|>"


def test_special_tokens_in_the_text_are_hidden_unless_asked_for():
    house = House()
    fields = {"prompt": [97, 258, 98], "max_tokens": 3}
    assert house.complete(**fields).json["choices"][0]["text"] == "ab"
    shown = house.complete(**fields, skip_special_tokens=False).json
    assert shown["choices"][0]["text"] == "a<|im_start|>b"
