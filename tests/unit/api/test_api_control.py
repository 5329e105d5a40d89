"""What the house shows of itself, and how roles are set."""

import json

import pytest
from api_client import MODEL, House

from tercet.api.app import create_app
from tercet.api.config import ApiConfig


class FakeControls:
    def __init__(self):
        self.counts = {"prefill": 1, "decode": 2, "colocated": 0}
        self.models = []

    def status(self):
        return {"ready": True, "executors": []}

    def wanted(self, model):
        return dict(self.counts)

    def want(self, model, counts):
        self.models.append(model)
        self.counts.update(counts)


@pytest.fixture
def house():
    house = House()
    house.controls = FakeControls()
    config = ApiConfig(api_keys=("secret",))
    house.app = create_app(house.service, config, metrics=house.metrics, controls=house.controls)
    return house


KEY = (("authorization", "Bearer secret"),)


def put(house, body, headers=KEY):
    import asyncio

    content = json.dumps(body).encode()
    call = house.call("PUT", "/tercet/roles", content, headers=(*headers, *JSON))
    return asyncio.run(call)


JSON = (("content-type", "application/json"),)


def test_status_is_what_stands_behind_it(house):
    answer = house.get("/tercet/status", headers=KEY)
    assert (answer.status, answer.json) == (200, {"ready": True, "executors": []})


def test_roles_that_are_not_named_stay(house):
    answer = put(house, {"prefill": 2, "model": "tiny-alias"})
    assert answer.status == 200
    assert answer.json == {"model": MODEL.names[0], "prefill": 2, "decode": 2, "colocated": 0}
    assert house.controls.models == ["tiny"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({}, 400, "No role is given: one of prefill, decode and colocated was expected."),
        ({"prefill": -1}, 400, "prefill is -1, but an integer from 0 to 64 was expected."),
        ({"prefill": "1"}, 400, 'prefill is "1", but an integer from 0 to 64 was expected.'),
        ({"prefil": 1}, 400, 'Unrecognized request argument: "prefil". Did you mean prefill?'),
        ({"decode": 1, "model": "gpt"}, 404, 'The model "gpt" does not exist here'),
        (
            {"prefill": 0, "decode": 0},
            400,
            "0 executors would be left, but 1 to 64 of all roles together were expected.",
        ),
        ({"decode": 64}, 400, "65 executors would be left"),
    ],
)
def test_what_is_wrong_is_said(house, body, status, sentence):
    answer = put(house, body)
    assert answer.status == status
    assert answer.error["message"].startswith(sentence)
    assert house.controls.models == []


def test_both_ask_for_a_key(house):
    assert house.get("/tercet/status").status == 401
    assert put(house, {"decode": 1}, headers=()).status == 401


def test_without_controls_there_is_no_route():
    assert House().get("/tercet/status").status == 404
