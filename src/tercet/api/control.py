"""`/tercet/status` and `/tercet/roles`: what a person who runs the house sees and sets."""

from collections.abc import Mapping
from typing import Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from tercet.api.body import Disconnected, read_object
from tercet.api.config import ApiConfig
from tercet.api.errors import send_body
from tercet.api.fields import Fields, Table
from tercet.api.models import find_model
from tercet.api.service import Service
from tercet.base.errors import Invalid

EXECUTORS_MAX = 64
ROLES = ("prefill", "decode", "colocated")
ROLE_FIELDS = Table(served=frozenset({"model", *ROLES}), idle={}, refused={})


class Controls(Protocol):
    """What stands behind these routes; both are cheap and called in the event loop."""

    def status(self) -> Mapping[str, object]:
        """Give everything that JSON can hold of the house as it is now."""
        ...

    def wanted(self, model: str) -> dict[str, int]:
        """Give how many executors of each role there shall be."""
        ...

    def want(self, model: str, counts: Mapping[str, int]) -> None:
        """Let there be so many; roles that are not named stay as they are."""
        ...


class Status:
    """`GET /tercet/status`."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send_body(send, 200, msgspec.json.encode(self._controls.status()))


class Roles:
    """`PUT /tercet/roles`: answers with what is wanted from now on."""

    def __init__(self, service: Service, controls: Controls, config: ApiConfig) -> None:
        self._service = service
        self._controls = controls
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_object(scope, receive, self._config)
        except Disconnected:
            return
        fields = Fields(body, ROLE_FIELDS)
        model = find_model(fields, self._service, required=False).names[0]
        counts = _counts(fields)
        total = sum({**self._controls.wanted(model), **counts}.values())
        if not 1 <= total <= EXECUTORS_MAX:
            raise Invalid(
                f"{total} executors would be left, but 1 to {EXECUTORS_MAX} of all roles together "
                "were expected.",
                parameter=next(iter(counts)),
            )
        self._controls.want(model, counts)
        answer = {"model": model, **self._controls.wanted(model)}
        await send_body(send, 200, msgspec.json.encode(answer))


def _counts(fields: Fields) -> dict[str, int]:
    counts: dict[str, int] = {}
    for role in ROLES:
        count = fields.integer(role, low=0, high=EXECUTORS_MAX)
        if count is not None:
            counts[role] = count
    if not counts:
        raise Invalid(
            "No role is given: one of prefill, decode and colocated was expected.",
            code="missing_parameter",
            parameter="prefill",
        )
    return counts
