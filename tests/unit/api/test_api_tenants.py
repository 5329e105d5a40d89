"""Each API key is a tenant, part of every cache key: prompts are never shared between keys (I8)."""

from api_client import House

from tercet.api.config import ApiConfig


def _namespace(house, call, key):
    asked = []
    submit = house.service.submit
    house.service.submit = lambda job, sink: (asked.append(job.namespace), submit(job, sink))
    assert call(headers=[("authorization", f"Bearer {key}")]).status == 200
    house.service.submit = submit
    return asked[0]


def test_keys_are_tenants_on_every_route():
    house = House(ApiConfig(api_keys=("alpha", "beta")))

    def complete(**options):
        return house.post("/v1/completions", {"model": "tiny", "prompt": "abc"}, **options)

    def chat(**options):
        messages = [{"role": "user", "content": "abc"}]
        return house.post(
            "/v1/chat/completions", {"model": "tiny", "messages": messages}, **options
        )

    first = _namespace(house, complete, "alpha")
    assert first
    assert "alpha" not in first
    assert _namespace(house, complete, "alpha") == first
    assert _namespace(house, chat, "alpha") == first
    assert _namespace(house, chat, "beta") not in {first, ""}


def test_without_keys_there_is_one_tenant():
    house = House()
    asked = []
    submit = house.service.submit
    house.service.submit = lambda job, sink: (asked.append(job.namespace), submit(job, sink))
    assert house.complete().status == 200
    assert asked == [""]
