"""Everything a client can get wrong is refused before the service sees it, on every route alike."""

import json

import pytest
from api_client import CHAT, COMPLETIONS, CONTEXT, House

from tercet.api.config import ApiConfig
from tercet.api.fields import CHAT as CHAT_TABLE
from tercet.api.fields import COMPLETIONS as COMPLETIONS_TABLE

BASES = {
    COMPLETIONS: {"model": "tiny", "prompt": "abc"},
    CHAT: {"model": "tiny", "messages": [{"role": "user", "content": "abc"}]},
}
ROUTES = list(BASES)

HUGE = 10**30
WRONG = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", HUGE),
    ("max_tokens", "5"),
    ("max_tokens", 5.0),
    ("max_tokens", True),
    ("max_tokens", [5]),
    ("min_tokens", -1),
    ("min_tokens", 10_000),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", HUGE),
    ("temperature", -HUGE),
    ("top_p", -0.1),
    ("top_p", 1.1),
    ("top_p", {}),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", HUGE),
    ("min_p", -0.1),
    ("min_p", 1.01),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("repetition_penalty", 1e-320),
    ("presence_penalty", 2.1),
    ("presence_penalty", "0"),
    ("frequency_penalty", -2.1),
    ("seed", 1.5),
    ("seed", "1"),
    ("seed", HUGE),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", True),
    ("n", 1.0),
    ("best_of", 0),
    ("best_of", 2),
    ("logit_bias", {"260": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"1.0": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": "2"}),
    ("logit_bias", {"1": None}),
    ("logit_bias", {"1" * 30: 1}),
    ("logit_bias", {"\u0661": 1}),
    ("logit_bias", {"7": 1, "07": -100}),
    ("logit_bias", {"+7": 1}),
    ("logit_bias", {" 7": 1}),
    ("logit_bias", {"7\n": 1}),
    ("logit_bias", {"1_0": 1}),
    ("logit_bias", {"": 1}),
    ("logit_bias", {"7": True}),
    ("logit_bias", [1]),
    ("logit_bias", {str(i): 1 for i in range(1025)}),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", ["a"] * 17),
    ("stop", [1]),
    ("stop", 1),
    ("stop", "x" * 2000),
    ("stop_token_ids", [260]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [True]),
    ("stop_token_ids", [1.0]),
    ("stop_token_ids", 1),
    ("stop_token_ids", [HUGE]),
    ("stop_token_ids", [1] * 257),
    ("ignore_eos", 1),
    ("ignore_eos", "true"),
    ("skip_special_tokens", 0),
    ("include_stop_str_in_output", "no"),
    ("return_token_ids", 1),
    ("add_special_tokens", 1),
    ("stream", 1),
    ("stream", "true"),
    ("stream_options", {"include_usage": True}),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 21),
    ("prompt_logprobs", True),
    ("user", 5),
    ("metadata", "x"),
    ("parallel_tool_calls", "x"),
    ("model", 5),
    ("model", ["tiny"]),
]
WRONG_HERE = [
    (COMPLETIONS, "logprobs", True),
    (COMPLETIONS, "logprobs", -1),
    (COMPLETIONS, "logprobs", 21),
    (COMPLETIONS, "echo", 1),
    (COMPLETIONS, "prompt", ""),
    (COMPLETIONS, "prompt", []),
    (COMPLETIONS, "prompt", [""]),
    (COMPLETIONS, "prompt", [[]]),
    (COMPLETIONS, "prompt", ["a", [1], []]),
    (COMPLETIONS, "prompt", [1, "a"]),
    (COMPLETIONS, "prompt", ["a", 1]),
    (COMPLETIONS, "prompt", ["a", None]),
    (COMPLETIONS, "prompt", [[1, [2]]]),
    (COMPLETIONS, "prompt", {"text": "a"}),
    (COMPLETIONS, "prompt", 5),
    (COMPLETIONS, "prompt", True),
    (COMPLETIONS, "prompt", [True]),
    (COMPLETIONS, "prompt", [1.0]),
    (COMPLETIONS, "prompt", [None]),
    (COMPLETIONS, "prompt", [999_999]),
    (COMPLETIONS, "prompt", [260]),
    (COMPLETIONS, "prompt", [-1]),
    (COMPLETIONS, "prompt", [HUGE]),
    (COMPLETIONS, "prompt", [[1, 2], [260]]),
    (COMPLETIONS, "prompt", [[1]] * 1025),
    (COMPLETIONS, "prompt", None),
    (CHAT, "logprobs", 1),
    (CHAT, "top_logprobs", 2),
    (CHAT, "max_completion_tokens", 0),
    (CHAT, "messages", None),
    (CHAT, "messages", []),
    (CHAT, "messages", "hi"),
    (CHAT, "messages", ["hi"]),
    (CHAT, "messages", [{}]),
    (CHAT, "messages", [{"role": "user"}]),
    (CHAT, "messages", [{"role": "user", "content": None}]),
    (CHAT, "messages", [{"role": "user", "content": 5}]),
    (CHAT, "messages", [{"role": "user", "content": []}]),
    (CHAT, "messages", [{"role": "user", "content": ["a"]}]),
    (CHAT, "messages", [{"role": "user", "content": [{"type": "text"}]}]),
    (CHAT, "messages", [{"role": "user", "content": [{"type": "text", "text": 1}]}]),
    (CHAT, "messages", [{"role": "wizard", "content": "a"}]),
    (CHAT, "messages", [{"role": 5, "content": "a"}]),
    (CHAT, "messages", [{"role": ["user"], "content": "a"}]),
    (CHAT, "messages", [{"role": {"a": 1}, "content": "a"}]),
    (CHAT, "messages", [{"role": "user", "content": "a", "name": 5}]),
    (CHAT, "messages", [{"role": "user", "content": "a", "colour": "red"}]),
    (CHAT, "continue_final_message", True),
    (CHAT, "chat_template_kwargs", []),
    (CHAT, "chat_template_kwargs", {"messages": []}),
]
LATER_HERE = [
    (CHAT, "messages", [{"role": "tool", "content": "a", "tool_call_id": "1"}]),
    (CHAT, "messages", [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}]),
    (CHAT, "messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
    (CHAT, "messages", [{"role": "user", "content": [{"type": "input_audio"}]}]),
    (COMPLETIONS, "suffix", "end"),
    (COMPLETIONS, "best_of", 3),
    *((route, "response_format", {"type": "json_object"}) for route in ROUTES),
]


@pytest.fixture(scope="module")
def house():
    return House()


def refused(house, route, fields):
    num_jobs = len(house.service.jobs)
    answer = house.post(route, {**BASES[route], **fields})
    assert answer.status in {400, 404}, answer.body
    assert len(house.service.jobs) == num_jobs, "an invalid request reached the service"
    error = answer.error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert isinstance(error["code"], str)
    assert error["message"]
    return error


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda value: str(value)[:30])
def test_a_wrong_value_is_refused_on_every_route(house, route, name, value):
    """vllm PR#9634, PR#16529, #54195, PR#45441: ids out of vocabulary killed the server."""
    error = refused(house, route, {name: value})
    assert error["param"] == name
    assert name in error["message"]


@pytest.mark.parametrize(("route", "name", "value"), WRONG_HERE, ids=lambda v: str(v)[:30])
def test_a_wrong_value_is_refused_on_its_route(house, route, name, value):
    assert refused(house, route, {name: value})["param"] == name


@pytest.mark.parametrize(("route", "name", "value"), LATER_HERE, ids=lambda v: str(v)[:30])
def test_what_is_not_served_yet_is_refused_by_name(house, route, name, value):
    error = refused(house, route, {name: value})
    assert "not served yet" in error["message"]
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize(
    ("route", "name"),
    [(COMPLETIONS, name) for name in COMPLETIONS_TABLE.refused]
    + [(CHAT, name) for name in CHAT_TABLE.refused],
)
def test_every_refused_field_says_so_and_its_null_passes(house, route, name):
    """vllm#43920, PR#47312, #40816: what a server cannot do is refused by name, not half done."""
    error = refused(house, route, {name: {"something": [1]}})
    assert error["param"] == name
    assert "not served yet" in error["message"]
    for neutral in (None, *(CHAT_TABLE.refused | COMPLETIONS_TABLE.refused)[name]):
        assert house.post(route, {**BASES[route], "max_tokens": 1, name: neutral}).status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("typo", "meant"),
    [("temprature", "temperature"), ("max_token", "max_tokens"), ("toools", "tools?")],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(house, route, typo, meant):
    error = refused(house, route, {typo: 1})
    assert error["code"] == "unknown_parameter"
    assert error["param"] == typo
    if not (route == COMPLETIONS and typo == "toools"):
        assert meant in error["message"]


def test_fields_of_the_other_endpoint_are_refused(house):
    refused(house, COMPLETIONS, {"messages": []})
    refused(house, COMPLETIONS, {"top_logprobs": 1})
    refused(house, CHAT, {"prompt": "a"})


@pytest.mark.parametrize("route", ROUTES)
def test_fields_without_effect_are_accepted(house, route):
    fields = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "parallel_tool_calls": True,
        "max_tokens": 1,
    }
    assert house.post(route, {**BASES[route], **fields}).status == 200
    assert house.post(route, {**BASES[route], **dict.fromkeys(fields)}).status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("max_tokens", [None, CONTEXT, 1])
def test_what_exceeds_the_context_is_refused_with_the_numbers(house, route, max_tokens):
    """conventions C4: clients look for the code, or for the words. vmlx#255: nothing is cut."""
    length = CONTEXT + 8 if max_tokens == 1 else CONTEXT
    if max_tokens == CONTEXT:
        length = 10
    long = "x" * length
    field = {"prompt": long} if route == COMPLETIONS else _messages(long)
    error = refused(house, route, {**field, "max_tokens": max_tokens})
    assert error["code"] == "context_length_exceeded"
    assert f"maximum context length is {CONTEXT} tokens" in error["message"]


def _messages(text):
    return {"messages": [{"role": "user", "content": text}]}


def test_the_context_is_used_to_its_last_token(house):
    full = {"prompt": [1] * (CONTEXT - 3), "ignore_eos": True}
    assert house.complete(**full, max_tokens=3).json["usage"]["completion_tokens"] == 3
    assert house.complete(**full).json["usage"]["completion_tokens"] == 3
    assert house.complete(**full, max_tokens=4).error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("route", ROUTES)
def test_a_model_that_does_not_exist_is_404(house, route):
    error = refused(house, route, {"model": "gpt-99"})
    assert error["code"] == "model_not_found"
    assert "gpt-99" in error["message"]
    missing = house.post(route, {k: v for k, v in BASES[route].items() if k != "model"})
    assert missing.status == 400
    assert missing.error["param"] == "model"


def test_stream_options_are_strict(house):
    for options in ({"include_usage": 1}, {"usage": True}, [], "x"):
        error = refused(house, CHAT, {"stream": True, "stream_options": options})
        assert error["param"] == "stream_options"


def test_two_limits_on_new_tokens_must_agree(house):
    refused(house, CHAT, {"max_tokens": 2, "max_completion_tokens": 3})
    assert house.chat(max_tokens=2, max_completion_tokens=2).status == 200


def test_too_many_completions_at_once_are_refused(house):
    refused(house, COMPLETIONS, {"prompt": ["a"] * 100, "n": 11})


def test_values_in_messages_are_shortened(house):
    error = refused(house, CHAT, {"temperature": "x" * 10_000})
    assert len(error["message"]) < 300
    assert len(json.dumps(error)) < 500


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 100_000])
def test_ids_beyond_the_context_are_refused_with_the_numbers(house, length):
    error = refused(house, COMPLETIONS, {"prompt": [1] * length})
    assert error["code"] == "context_length_exceeded"
    assert str(length) in error["message"]


def test_an_answer_that_is_mostly_its_own_prompt_is_refused():
    small = House(ApiConfig(prompt_logprobs_max=100))
    fields = {"prompt": [1] * 10, "echo": True, "max_tokens": 1}
    assert small.complete(**fields, logprobs=9).status == 200
    assert small.complete(**fields, logprobs=10).error["param"] == "logprobs"
    assert small.complete(**fields, logprobs=9, n=2).status == 400
    assert small.complete(**fields, prompt_logprobs=10).status == 400
    assert small.chat(prompt_logprobs=9, max_tokens=1).status == 400


def test_many_choices_share_their_stop_strings():
    """Compiling the longest list that is allowed for each of 1,024 tasks would take a minute."""
    house = House()
    stops = [f"{index:02}" + "x" * 254 for index in range(16)]
    answer = house.complete(prompt=["ab"] * 8, n=128, max_tokens=2, stop=stops)
    assert [choice["text"] for choice in answer.json["choices"]] == ["ab"] * 1024
