"""The official client and curl, unmodified, over a real socket; the echo service behind."""

import json
import shutil
import subprocess
import threading
import time

import httpx
import openai
import pytest
from echo_server import echo_server

from tercet.api.config import ApiConfig
from tercet.jobs.job import Failure, FailureCode


@pytest.fixture(scope="module")
def served():
    with echo_server(ApiConfig(api_keys=("key",))) as (address, service):
        yield address, service


@pytest.fixture
def client(served):
    with openai.OpenAI(base_url=served[0] + "/v1", api_key="key", max_retries=0) as client:
        yield client


def ask(client, **fields):
    messages = [{"role": "user", "content": "Hello"}]
    return client.chat.completions.create(model="tiny", messages=messages, **fields)


def test_chat(client):
    answer = ask(client, max_tokens=6, extra_body={"ignore_eos": True})
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "user\n"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 6
    assert answer.usage.prompt_tokens_details.cached_tokens == 16
    assert answer.id.startswith("chatcmpl-")
    assert answer._request_id


def test_completions_of_every_kind_of_prompt(client):
    """llama.cpp#14204: a list was served, and one string was an error of the server."""
    for prompt in ("ab", [97, 98], ["ab"], [[97, 98]]):
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=4)
        assert answer.choices[0].text == "abab"
    many = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=1)
    assert [choice.text for choice in many.choices] == ["a", "a", "b", "b"]
    echo = client.completions.create(model="tiny", prompt="ab", echo=True, max_tokens=2, logprobs=1)
    assert echo.choices[0].text == "abab"
    assert echo.choices[0].logprobs.tokens == ["a", "b", "a", "b"]
    assert echo.choices[0].logprobs.token_logprobs[0] is None


def test_streams_with_usage(client):
    options = {"include_usage": True}
    stream = ask(
        client,
        max_tokens=6,
        n=2,
        stream=True,
        stream_options=options,
        extra_body={"ignore_eos": True},
    )
    *events, last = list(stream)
    for index in (0, 1):
        mine = [e.choices[0] for e in events if e.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == "user\n"
        assert [c.finish_reason for c in mine if c.finish_reason] == ["length"]
    assert last.choices == []
    assert last.usage.completion_tokens == 12
    with client.completions.create(model="tiny", prompt="ab", max_tokens=3, stream=True) as stream:
        assert "".join(event.choices[0].text for event in stream) == "aba"


def test_logprobs_stop_and_seed(client):
    answer = ask(
        client,
        max_tokens=6,
        logprobs=True,
        top_logprobs=2,
        seed=-5,
        stop=["er", "zzz"],
        extra_body={"ignore_eos": True, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
    )
    assert answer.choices[0].message.content == "us"
    assert answer.choices[0].finish_reason == "stop"
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert len(content[0].top_logprobs) == 2


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "tercet"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors_by_class(client, served):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, temperature=9)
    assert refused.value.param == "temperature"
    assert refused.value.code == "invalid_value"
    assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        ask(client, max_tokens=5000)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-99", messages=[{"role": "user", "content": "a"}])
    with (
        openai.OpenAI(base_url=served[0] + "/v1", api_key="other", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        ask(stranger)
    with pytest.raises(openai.BadRequestError, match="not served yet"):
        ask(client, tools=[{"type": "function", "function": {"name": "f"}}])


@pytest.mark.parametrize("stream", [False, True])
def test_overload_is_an_internal_server_error_that_the_client_retries(stream):
    with (
        echo_server(refusal=Failure(FailureCode.OVERLOADED, "")) as (address, service),
        openai.OpenAI(base_url=address + "/v1", api_key="-", max_retries=1) as client,
    ):
        with pytest.raises(openai.InternalServerError) as refused:
            ask(client, max_tokens=1, stream=stream)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        assert len(service.jobs) == 2
        timer = threading.Timer(0.2, lambda: setattr(service, "refusal", None))
        timer.start()
        answer = ask(client, max_tokens=1, stream=stream)
        assert list(answer)
        timer.join()


def test_a_job_that_kills_executors_is_not_retried():
    with (
        echo_server(failure=Failure(FailureCode.EXECUTOR_LOST, "")) as (address, service),
        openai.OpenAI(base_url=address + "/v1", api_key="-", max_retries=2) as client,
    ):
        with pytest.raises(openai.InternalServerError):
            ask(client, max_tokens=1)
        assert len(service.jobs) == 1


def test_a_stream_that_fails_raises_in_the_client():
    failure = Failure(FailureCode.EXECUTOR_LOST, "")
    with (
        echo_server(failure=failure, failure_after=3) as (address, _),
        openai.OpenAI(base_url=address + "/v1", api_key="-") as client,
    ):
        stream = client.completions.create(model="tiny", prompt="ab", max_tokens=9, stream=True)
        texts = []
        with pytest.raises(openai.APIError, match="given up"):
            texts.extend(event.choices[0].text for event in stream)


def wait_until(condition):
    """Give other threads up to ten seconds to make it true."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(condition)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_job(stream):
    """llama.cpp#13262: a disconnect was not noticed."""
    with echo_server(pause_s=0.05) as (address, service):
        body = {"model": "tiny", "prompt": "ab", "max_tokens": 1000, "stream": stream}
        timeout = httpx.Timeout(5, read=0.3)
        with httpx.Client(timeout=timeout) as client:
            if stream:
                with client.stream("POST", address + "/v1/completions", json=body) as answer:
                    assert b"data: " in next(answer.iter_bytes())
            else:
                with pytest.raises(httpx.ReadTimeout):
                    client.post(address + "/v1/completions", json=body)
        wait_until(lambda: service.cancelled)
        assert service.cancelled == [service.jobs[0].id]
        assert service.num_running == 0


def test_a_client_that_leaves_while_queued_frees_its_job():
    with echo_server(pause_s=3600.0) as (address, service):
        body = {"model": "tiny", "prompt": "ab", "max_tokens": 10, "stream": True}
        timeout = httpx.Timeout(5, read=0.2)
        with httpx.Client(timeout=timeout) as client, pytest.raises(httpx.ReadTimeout):
            client.post(address + "/v1/completions", json=body)
        wait_until(lambda: service.cancelled)


def test_many_clients_at_once(served):
    """llama.cpp#16448: after some requests the server accepted but never answered."""
    headers = {"Authorization": "Bearer key"}
    with httpx.Client(base_url=served[0], headers=headers, timeout=20) as client:
        for count in range(100):
            body = {"model": "tiny", "prompt": "ab", "max_tokens": 2, "stream": count % 2 == 0}
            assert client.post("/v1/completions", json=body).status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(served):
    def curl(*arguments):
        command = ["curl", "-sS", "-H", "Authorization: Bearer key", *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=20).stdout

    body = '{"model":"tiny","prompt":"ab","max_tokens":3}'
    kind = ("-H", "Content-Type: application/json")
    url = served[0] + "/v1/completions"
    assert json.loads(curl(url, *kind, "-d", body))["choices"][0]["text"] == "aba"
    streamed = curl("-N", url, *kind, "-d", body[:-1] + ',"stream":true}').decode()
    assert streamed.endswith("data: [DONE]\n\n")
    assert curl("-o", "/dev/null", "-w", "%{http_code}", served[0] + "/ready") == b"200"
    assert curl("-I", served[0] + "/health").startswith(b"HTTP/1.1 200")
    wrong = json.loads(curl(url, "-d", body))
    assert wrong["error"]["code"] == "unsupported_media_type"
