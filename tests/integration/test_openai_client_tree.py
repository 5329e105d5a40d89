"""The official client against the whole tree of processes, on a tiny model with random weights."""

import openai
import pytest

from tercet.api.config import ApiConfig
from tercet.observe.config import ObserveConfig
from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.tree import start_tree

MODEL = "random-llama"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    config = TreeConfig(
        model="random:llama?layers=2&seed=3",
        cache_folder=str(tmp_path_factory.mktemp("cache")),
        served_names=(MODEL,),
        runtime=RuntimeConfig(port=0, device="cpu", threads=1, kv_cache_memory_bytes=32 << 20),
        api=ApiConfig(api_keys=("key",)),
        observe=ObserveConfig(log_level="warning"),
    )
    running = start_tree(config, timeout_s=120)
    yield running
    running.close()


@pytest.fixture
def client(tree):
    with openai.OpenAI(base_url=tree.url + "/v1", api_key="key", max_retries=0) as client:
        yield client


def complete(client, *, prompt="The quick brown fox", **fields):
    extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
    fields = {"max_tokens": 24, "temperature": 0, **fields}
    return client.completions.create(model=MODEL, prompt=prompt, extra_body=extra, **fields)


def streamed(client, **fields):
    """The text of every choice, its finish, and the usage."""
    texts, finishes, usage = {}, {}, None
    options = {"include_usage": True}
    for event in complete(client, stream=True, stream_options=options, **fields):
        usage = event.usage or usage
        for choice in event.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.finish_reason:
                assert choice.index not in finishes
                finishes[choice.index] = choice.finish_reason
    return texts, finishes, usage


def test_streamed_and_whole_are_the_same(client):
    fields = {"n": 3, "temperature": 0.8, "seed": 11}
    whole = complete(client, **fields)
    texts, finishes, usage = streamed(client, **fields)
    assert [texts[index] for index in range(3)] == [choice.text for choice in whole.choices]
    assert set(finishes.values()) == {"length"}
    assert usage.completion_tokens == whole.usage.completion_tokens == 72
    assert len(set(texts.values())) == 3, "choices differ under one seed"
    assert [c.text for c in complete(client, **fields | {"seed": 12}).choices] != list(
        texts.values()
    )


def test_a_stop_string_from_the_middle_cuts_both_alike(client):
    """vllm#2577."""
    text = complete(client).choices[0].text
    stop = text[7:10]
    expected = text[: text.index(stop)]
    whole = complete(client, stop=stop)
    assert whole.choices[0].text == expected
    assert whole.choices[0].finish_reason == "stop"
    texts, finishes, usage = streamed(client, stop=[stop, "never said"])
    assert (texts, finishes) == ({0: expected}, {0: "stop"})
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_token_ids_and_text_are_one_prompt(client):
    ids = list(b"The quick brown fox")
    assert complete(client, prompt=ids).choices[0].text == complete(client).choices[0].text
    many = complete(client, prompt=["The quick brown fox", "Something else"], n=2)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == many.choices[1].text == complete(client).choices[0].text


def test_logprobs_of_an_answer_and_of_its_echo_agree(client):
    answer = complete(client, prompt=list(b"abcabcabc"), max_tokens=8, logprobs=3)
    shown = answer.choices[0].logprobs
    assert len(shown.tokens) == 8
    for value, top in zip(shown.token_logprobs, shown.top_logprobs, strict=True):
        assert value == max(top.values()) <= 0, "greedy takes the best"
    ids = complete(client, prompt=list(b"abcabcabc"), max_tokens=8,
                   extra_body={"return_token_ids": True}).choices[0].token_ids  # fmt: skip
    again = (
        complete(client, prompt=[*b"abcabcabc", *ids], max_tokens=0, echo=True, logprobs=3)
        .choices[0]
        .logprobs
    )
    assert again.token_logprobs[0] is None
    assert again.token_logprobs[9:] == pytest.approx(shown.token_logprobs, abs=1e-3)


def test_chat_with_usage_and_cached_tokens(client):
    messages = [{"role": "user", "content": "Tell me a long story about nothing. " * 4}]
    fields = {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0}
    first = client.chat.completions.create(**fields, extra_body={"ignore_eos": True})
    second = client.chat.completions.create(**fields, extra_body={"ignore_eos": True})
    assert first.choices[0].message.content == second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens >= 128
    assert second.usage.prompt_tokens == first.usage.prompt_tokens


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [999_999]},
        {"logit_bias": {"999999": 1}},
        {"extra_body": {"stop_token_ids": [999_999]}},
        {"seed": 2**70},
        {"max_tokens": 10**6},
        {"prompt": ""},
    ],
)
def test_what_would_kill_an_engine_is_refused_and_the_next_request_is_served(client, fields):
    """vllm PR#9634, PR#16529, #54195."""
    with pytest.raises(openai.BadRequestError):
        complete(client, **fields)
    assert complete(client, max_tokens=1).usage.completion_tokens == 1


def test_extreme_but_valid_values_are_served(client):
    """vllm PR#8870: a parameter that is good, and crashed what it met. Seeds of every kind too."""
    extremes = [
        {"temperature": 2, "top_p": 0},
        {"temperature": 1e-30},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {str(token): -100 for token in range(260)}},
        {"extra_body": {"repetition_penalty": 100, "top_k": 2**31 - 1, "min_p": 1}},
        {"extra_body": {"repetition_penalty": 0.01, "min_tokens": 24}},
        {"logprobs": 20, "temperature": 1.5},
        {"extra_body": {"prompt_logprobs": 20}},
        {"extra_body": {"stop_token_ids": list(range(256))}},
    ]
    for fields in extremes:
        answer = complete(client, **fields)
        assert answer.choices[0].finish_reason in {"length", "stop"}, fields


def test_errors_by_class(client, tree):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    with (
        openai.OpenAI(base_url=tree.url + "/v1", api_key="x", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        complete(stranger)


def test_metrics_have_the_names_that_dashboards_read(client, tree):
    complete(client, max_tokens=2)
    with openai.OpenAI(base_url=tree.url, api_key="key") as raw:
        text = raw.get("/metrics", cast_to=str)
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_success_total",
        "prefix_cache_hits_total",
        "time_to_first_token_seconds_bucket",
        "request_queue_time_seconds_count",
    ):
        assert f"\nvllm:{name}{{" in text
        assert f"\ntercet:{name}{{" in text
