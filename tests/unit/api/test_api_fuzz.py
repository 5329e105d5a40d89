"""Random bodies never make the server fail, and what reaches the service is always valid."""

import json

import pytest
from api_client import CHAT, COMPLETIONS, CONTEXT, House
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercet.api.fields import CHAT as CHAT_TABLE
from tercet.api.fields import COMPLETIONS as COMPLETIONS_TABLE
from tercet.api.fields import DETOKENIZE, TOKENIZE

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

TABLES = {
    COMPLETIONS: COMPLETIONS_TABLE,
    CHAT: CHAT_TABLE,
    "/tokenize": TOKENIZE,
    "/detokenize": DETOKENIZE,
}

numbers = st.one_of(
    st.integers(-5, 600),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, 1, -1, 0.0, 2**31, 2**63, 2**64, 1e308, 5e-324]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
messages = st.lists(
    st.one_of(
        values,
        st.fixed_dictionaries(
            {
                "role": st.one_of(st.sampled_from(["system", "user", "assistant", "tool"]), values),
                "content": st.one_of(st.text(max_size=30), values),
            }
        ),
    ),
    max_size=3,
)
plausible = {
    "prompt": st.one_of(st.text(max_size=30), st.lists(st.integers(-1, 262), max_size=8), values),
    "messages": st.one_of(messages, values),
    "tokens": st.one_of(st.lists(st.integers(-1, 262), max_size=8), values),
    "stop": st.one_of(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=4), values),
    "logit_bias": st.dictionaries(st.integers(-2, 300).map(str), st.floats(-120, 120), max_size=4),
    "max_tokens": st.one_of(st.integers(-1, 40), values),
    "n": st.one_of(st.integers(0, 4), values),
    "stream": st.booleans(),
    "stream_options": st.dictionaries(
        st.sampled_from(["include_usage", "continuous_usage_stats", "x"]), st.booleans()
    ),
}


@st.composite
def bodies(draw, path):
    table = TABLES[path]
    known = sorted(table.served | table.idle.keys() | table.refused.keys())
    names = draw(st.lists(st.sampled_from(known), max_size=6, unique=True))
    body = {"model": "tiny"}
    if path == COMPLETIONS:
        body["prompt"] = "abc"
    elif path == CHAT:
        body["messages"] = [{"role": "user", "content": "abc"}]
    for name in names:
        body[name] = draw(plausible.get(name, values))
    for name in draw(st.lists(st.text(max_size=12), max_size=1)):
        body[name] = draw(values)
    return body


def check_job(job):
    sampling = job.sampling
    assert job.model == "tiny"
    assert 1 <= job.n <= 128
    assert job.prompts
    for prompt in job.prompts:
        assert prompt
        assert all(type(token) is int and 0 <= token < 260 for token in prompt)
        assert len(prompt) + sampling.max_tokens <= CONTEXT
    assert 0 <= sampling.min_tokens <= sampling.max_tokens
    assert sampling.max_tokens >= 1
    assert 0 <= sampling.temperature <= 2
    assert 0 < sampling.top_p <= 1
    assert 0 <= sampling.top_k <= 260
    assert 0 <= sampling.min_p <= 1
    assert 0.01 <= sampling.repetition_penalty <= 100
    assert sampling.seed is None or 0 <= sampling.seed < 2**63
    assert all(0 <= token < 260 and -100 <= bias <= 100 for token, bias in sampling.logit_bias)
    assert all(0 <= token < 260 for token in sampling.stop_token_ids)
    for count in (sampling.logprobs, sampling.prompt_logprobs):
        assert count is None or 0 <= count <= 20


@pytest.mark.parametrize("path", TABLES)
@settings(max_examples=120, deadline=None, suppress_health_check=SLOW_IS_FINE)
@given(data=st.data())
def test_no_body_makes_the_server_fail(path, data):
    """vllm PR#47312, PR#42614 and their kind: one request killed the server for all."""
    house = House(per_piece=8)
    body = data.draw(bodies(path))
    answer = house.post(path, json.dumps(body).encode())
    assert answer.whole
    assert answer.status in {200, 400, 404}
    if answer.status != 200:
        assert set(answer.error) == {"message", "type", "param", "code"}
        assert not house.service.jobs
    elif body.get("stream"):
        assert all("error" not in event for event in answer.events)
    for job in house.service.jobs:
        check_job(job)


@pytest.mark.parametrize("path", TABLES)
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_IS_FINE)
@given(content=st.one_of(st.binary(max_size=60), values.map(lambda v: json.dumps(v).encode())))
def test_no_bytes_make_the_server_fail(path, content):
    house = House()
    answer = house.post(path, content)
    assert answer.status == 400
    assert answer.error["message"]
    assert not house.service.jobs
