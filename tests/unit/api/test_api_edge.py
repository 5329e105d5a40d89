"""Keys, request ids, routes that are not there, and the bound on open requests."""

import asyncio
import json
import threading

import pytest
from api_client import CHAT, COMPLETIONS, Answer, House

from tercet.api.config import ApiConfig
from tercet.jobs.job import Failure, FailureCode

HEALTHS = ["/health", "/live", "/ready", "/liveness", "/readiness", "/ping"]
GUARDED = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("GET", "/metrics"),
    ("GET", "/version"),
    ("GET", "/nothing"),
    ("POST", "/v1/messages"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", COMPLETIONS),
    ("POST", CHAT),
]
BODY = json.dumps({"model": "tiny", "prompt": "abc", "max_tokens": 1}).encode()


@pytest.fixture
def guarded():
    return House(ApiConfig(api_keys=("first-key", "second-key")))


def ask(house, method, path, key=None):
    headers = [] if key is None else [("authorization", key)]
    return asyncio.run(house.call(method, path, BODY, headers=headers))


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "key",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic first-key", "first-key",
     "Bearer first-key2", "Bearer first-key second-key", "Bearer f\u00fcrst"],
)  # fmt: skip
def test_no_route_but_health_opens_without_a_key(guarded, method, path, key):
    """waybarrios/vllm-mlx#317: one route was not covered by the key."""
    answer = ask(guarded, method, path, key)
    assert answer.status == 401
    assert answer.error["code"] == "invalid_api_key"
    assert answer.error["type"] == "authentication_error"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "first-key" not in answer.body.decode()


@pytest.mark.parametrize("key", ["Bearer first-key", "bearer second-key", "Bearer  first-key "])
def test_any_of_the_keys_opens(guarded, key):
    assert ask(guarded, "POST", COMPLETIONS, key).status == 200
    assert ask(guarded, "GET", "/nothing", key).status == 404


@pytest.mark.parametrize("path", HEALTHS)
def test_health_needs_no_key(guarded, path):
    assert ask(guarded, "GET", path).status == 200


def test_a_request_id_comes_back_and_reaches_the_job():
    house = House()
    answer = house.post(COMPLETIONS, BODY, headers=[("x-request-id", "abc-1.2:3")])
    assert answer.headers["x-request-id"] == "abc-1.2:3"
    assert house.service.jobs[-1].request == "abc-1.2:3"
    assert int(answer.headers["openai-processing-ms"]) >= 0


@pytest.mark.parametrize("given", ["a\r\nx: y", "\u00e9\u00e9", "a" * 1000, "", "  ", "a\x00b"])
def test_a_request_id_is_made_harmless(given):
    house = House()
    latin = given.encode("utf-8").decode("latin-1")
    answer = house.post(COMPLETIONS, BODY, headers=[("x-request-id", latin)])
    shown = answer.headers["x-request-id"]
    assert 0 < len(shown) <= 128
    assert shown.isascii()
    assert shown.isprintable()
    assert " " not in shown


def test_request_ids_of_ours_differ():
    house = House()
    ids = {house.post(COMPLETIONS, BODY).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


def test_even_refusals_carry_a_request_id():
    answer = House().post(COMPLETIONS, b"{", headers=[("x-request-id", "mine")])
    assert answer.status == 400
    assert answer.headers["x-request-id"] == "mine"


def test_what_is_not_there_is_404_and_405_in_the_same_shape():
    house = House()
    missing = house.get("/v1/nothing")
    assert (missing.status, missing.error["code"]) == (404, "route_not_found")
    wrong = house.get(COMPLETIONS)
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    options = asyncio.run(house.call("OPTIONS", COMPLETIONS, b""))
    assert options.status == 405
    assert not any(name.startswith("access-control") for name in options.headers)
    assert asyncio.run(house.call("DELETE", "/v1/models", b"")).status == 405
    assert house.get("/v1/models/").status == 404
    assert house.get("/v1/models/gpt-99").error["code"] == "model_not_found"


def test_too_many_open_requests_are_503_at_once():
    house = House(ApiConfig(requests_max=2, retry_after_s=7), pause_s=0.02)

    async def flood():
        calls = [house.call("POST", COMPLETIONS, BODY) for _ in range(5)]
        answers = await asyncio.gather(*calls)
        return answers, await house.call("GET", "/ready", b"")

    answers, ready = asyncio.run(flood())
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503]
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.headers["retry-after"] == "7"
    assert refused.error["code"] == "overloaded"
    assert ready.status == 200
    assert house.post(COMPLETIONS, BODY).status == 200


def test_a_mistake_of_ours_is_500_without_its_story():
    house = House()
    house.service.submit = lambda job, sink: {}["/secret/path"]
    answer = Answer()
    with pytest.raises(KeyError):
        asyncio.run(house.call("POST", COMPLETIONS, BODY, into=answer))
    assert answer.status == 500
    assert answer.error["type"] == "server_error"
    assert "secret" not in answer.body.decode()
    assert "Traceback" not in answer.body.decode()


def test_configuration_is_checked():
    for bad in ({"api_keys": ("",)}, {"api_keys": ("\u00fc",)}, {"tasks_max": 5000}):
        with pytest.raises(ValueError, match=r"[a-z]"):
            ApiConfig(**bad)
    with pytest.raises(ValueError, match="body_bytes_max"):
        ApiConfig(body_bytes_max=0)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        *("/wake_up", "/sleep", "/is_sleeping", "/pause", "/resume", "/flush_cache"),
        *("/reset_prefix_cache", "/start_profile", "/abort_request", "/load", "/invocations"),
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/embeddings", "/v1/messages"),
        *("/v1/responses", "/v1/batches", "/v1/files", "/v1/audio/speech", "/pd_role_switch"),
        *("/v1/completions/", "/V1/models", "/v1", "/", "//", "/%00"),
    ],
)
def test_routes_of_other_servers_are_404_in_the_same_shape(method, path):
    """vllm#36753, #18372, ollama#17118, litellm#25321: what is not served is said to be so."""
    house = House()
    answer = asyncio.run(house.call(method, path, BODY))
    assert answer.status == 404
    assert answer.error["type"] == "invalid_request_error"
    assert not house.service.jobs
    assert house.complete(max_tokens=1).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (COMPLETIONS, {"model": "tiny", "prompt": []}, 400),
        (COMPLETIONS, {"model": "x", "prompt": "a"}, 404),
        ("/nothing", {}, 404),
        (COMPLETIONS, {"model": "tiny", "prompt": "a"}, 503),
    ],
)
def test_a_refusal_takes_no_thread(path, body, status):
    """vllm#50150: what grows by the request; each refusal made a thread, up to forty of them."""
    house = House()
    house.service.refusal = Failure(FailureCode.OVERLOADED, "") if status == 503 else None

    async def refused():
        content = json.dumps(body).encode()
        before = threading.active_count()
        answers = await asyncio.gather(*(house.call("POST", path, content) for _ in range(5)))
        assert {answer.status for answer in answers} == {status}
        assert threading.active_count() == before

    asyncio.run(refused())
