"""Small routes for machines: health, metrics, version."""

import platform

import msgspec
from starlette.types import Receive, Scope, Send

import tercet
from tercet.api.errors import send_body
from tercet.api.service import Service
from tercet.observe.metrics import CONTENT_TYPE, Metrics


class Probe:
    """`/live`, `/ready` and `/health` (which is both): 200 or 503, and why."""

    def __init__(self, service: Service, kind: str) -> None:
        self._service = service
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        health = self._service.health()
        good = {
            "live": health.live,
            "ready": health.ready,
            "health": health.live and health.ready,
        }[self._kind]
        body = {
            "status": "ok" if good else "unavailable",
            "live": health.live,
            "ready": health.ready,
            "reason": health.reason,
            **dict(health.details),
        }
        headers = [] if good else [(b"retry-after", b"1")]
        await send_body(send, 200 if good else 503, msgspec.json.encode(body), headers=headers)


class Exposition:
    """`/metrics`, for Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send_body(send, 200, self._metrics.exposition(), content_type=CONTENT_TYPE)


class Version:
    """`/version`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        body = {"version": tercet.__version__, "python": platform.python_version()}
        await send_body(send, 200, msgspec.json.encode(body))
