"""The small routes: models, tokens, probes, metrics, version."""

import pytest
from api_client import CODEC, House

from tercet.api.service import Health
from tercet.messages.wire import Load
from tercet.observe.board import ExecutorLoad
from tercet.observe.metrics import Metrics


@pytest.fixture
def house():
    return House()


def test_models_are_listed_under_every_name(house):
    body = house.get("/v1/models").json
    assert body["object"] == "list"
    assert [card["id"] for card in body["data"]] == ["tiny", "tiny-alias"]
    one = house.get("/v1/models/tiny-alias").json
    assert one["id"] == "tiny-alias"
    assert one["root"] == "tiny"
    assert one["object"] == "model"
    assert one["max_model_len"] == 512


def test_text_and_tokens_go_round(house):
    text = "héllo 日本 <|im_start|>"
    body = house.post("/tokenize", {"model": "tiny", "prompt": text}).json
    assert body["tokens"] == CODEC.encode(text)
    assert body["count"] == len(body["tokens"])
    assert body["max_model_len"] == 512
    back = house.post("/detokenize", {"tokens": body["tokens"]}).json
    assert back == {"prompt": text}
    assert house.post("/detokenize", {"tokens": []}).json == {"prompt": ""}
    assert house.post("/tokenize", {"prompt": ""}).json["count"] == 0


def test_a_chat_is_tokenized_as_it_would_be_served(house):
    messages = [{"role": "user", "content": "Hello"}]
    counted = house.post("/tokenize", {"messages": messages, "return_token_strs": True}).json
    assert counted["count"] == house.chat("Hello", max_tokens=1).json["usage"]["prompt_tokens"]
    assert counted["token_strs"][0] == "<|im_start|>"
    assert tuple(counted["tokens"]) == house.service.jobs[-1].prompts[0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": ["a"]}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": "a", "max_tokens": 5}),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}),
        ("/tokenize", {"messages": [{"role": "user", "content": 1}]}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "a"}),
        ("/detokenize", {"tokens": [260]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [True]}),
        ("/detokenize", {"tokens": [[1]]}),
    ],
)
def test_wrong_tokens_and_texts_are_refused(house, path, body):
    answer = house.post(path, body)
    assert answer.status == 400
    assert answer.error["param"]


def test_an_unknown_model_is_404_on_every_route(house):
    for path in ("/tokenize", "/detokenize"):
        assert house.post(path, {"model": "x", "prompt": "a"}.copy()).status in {400, 404}
    assert house.post("/tokenize", {"model": "x", "prompt": "a"}).status == 404
    assert house.post("/detokenize", {"model": "x", "tokens": [1]}).status == 404


STATES = [
    (Health(live=True, ready=True), 200, 200, 200),
    (Health(live=True, ready=False, reason="loading"), 200, 503, 503),
    (Health(live=False, ready=False, reason="frozen"), 503, 503, 503),
]


@pytest.mark.parametrize(("state", "live", "ready", "health"), STATES)
def test_probes_say_what_is_true(house, state, live, ready, health):
    """vllm#39863: the engine was dead and /health still said 200."""
    house.service.condition = state
    expected = {"/live": live, "/liveness": live, "/ready": ready, "/readiness": ready}
    expected |= {"/health": health, "/ping": health}
    for path, status in expected.items():
        answer = house.get(path)
        assert answer.status == status
        assert answer.json["reason"] == state.reason


def test_version(house):
    assert house.get("/version").json["version"]


def samples(house):
    """Every sample of /metrics by its name with labels."""
    answer = house.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_count_requests_under_both_names(house):
    for stream in (False, True):
        house.complete(max_tokens=4, n=2, stream=stream)
    house.complete(max_tokens=5, stop="c")
    house.complete(temperature=5)
    found = samples(house)
    for prefix in ("vllm:", "tercet:"):
        labels = '{engine="0",model_name="tiny"}'
        assert found[f"{prefix}prompt_tokens_total{labels}"] == 18
        assert found[f"{prefix}generation_tokens_total{labels}"] == 19
        assert found[f"{prefix}prefix_cache_queries_total{labels}"] == 30
        assert found[f"{prefix}e2e_request_latency_seconds_count{labels}"] == 3
        assert found[f"{prefix}time_to_first_token_seconds_count{labels}"] == 3
        assert found[f"{prefix}request_params_n_sum{labels}"] == 5
        assert found[f"{prefix}request_params_max_tokens_sum{labels}"] == 13
        reasons = '{{engine="0",finished_reason="{}",model_name="tiny"}}'
        assert found[f"{prefix}request_success_total" + reasons.format("length")] == 2
        assert found[f"{prefix}request_success_total" + reasons.format("stop")] == 1
        front = '{engine="front",model_name="tiny"}'
        assert found[f"{prefix}num_requests_running{front}"] == 0
        assert found[f"{prefix}num_requests_waiting{front}"] == 0


def test_responses_are_counted_by_route_and_status(house):
    house.complete(max_tokens=1)
    house.complete(max_tokens=-1)
    for path in ("/x", "/y"):
        house.get(path)
    found = samples(house)
    name = 'tercet:http_responses_total{{route="{}",status="{}"}}'
    assert found[name.format("/v1/completions", 200)] == 1
    assert found[name.format("/v1/completions", 400)] == 1
    assert found[name.format("other", 404)] == 2


def test_loads_of_executors_are_shown():
    load = Load(waiting=2, running=3, blocks_free=25, blocks_total=100)
    house = House(metrics=Metrics(loads=lambda: [ExecutorLoad("tiny", 7, load)]))
    house.metrics.serve(["tiny"])
    found = samples(house)
    labels = '{engine="7",model_name="tiny"}'
    assert found[f"vllm:num_requests_running{labels}"] == 3
    assert found[f"vllm:num_requests_waiting{labels}"] == 2
    assert found[f"vllm:kv_cache_usage_perc{labels}"] == 0.75
    assert found["process_resident_memory_bytes"] > 0
