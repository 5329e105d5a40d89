"""The outermost layer: request ids, keys, the bound on open requests, time taken.

Plain ASGI, once around every request: what is refused here costs next to nothing.
"""

import asyncio
import hmac
import re
import secrets
import time
from hashlib import sha256

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tercet.api.config import ApiConfig
from tercet.api.errors import send_ended, send_invalid
from tercet.api.outcomes import Ended
from tercet.api.ticket import Ticket
from tercet.base.errors import Invalid
from tercet.observe.metrics import Metrics

HEALTH_PATHS = frozenset({"/health", "/live", "/ready", "/liveness", "/readiness", "/ping"})
"""Never ask for a key, and are answered however many requests are open."""

_UNFIT = re.compile(r"[^A-Za-z0-9_.:=+/@-]")
_REQUEST_CHARS_MAX = 128
_TENANT_CHARS = 16


def ticket_of(scope: Scope) -> Ticket:
    ticket: Ticket = scope["tercet.ticket"]
    return ticket


class Edge:
    """Wraps the application."""

    def __init__(
        self, app: ASGIApp, config: ApiConfig, *, metrics: Metrics, routes: frozenset[str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes
        self._retry_after_s = config.retry_after_s
        self._requests_max = config.requests_max
        self._keys = [sha256(key.encode()).digest() for key in config.api_keys]
        self._nonce = secrets.token_hex(4)
        self._num_requests = 0
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no lifespan, and web sockets are closed by the server
        began = time.perf_counter_ns()
        request, authorization = self._read_headers(scope)
        tenant = self._tenant(authorization) if self._keys else ""
        scope["tercet.ticket"] = Ticket(request, self._nonce, tenant or "")
        shown = request.encode()
        path: str = scope["path"]

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                taken_ms = (time.perf_counter_ns() - began) // 1_000_000
                route = path if path in self._routes else "other"
                self._metrics.responded(route, message["status"])
                message["headers"].append((b"x-request-id", shown))
                message["headers"].append((b"openai-processing-ms", b"%d" % taken_ms))
            await send(message)

        if path in HEALTH_PATHS:
            await self._app(scope, receive, tagged)
            return
        if tenant is None:
            await send_invalid(tagged, _no_key(authorization), retry_after_s=self._retry_after_s)
            return
        if self._num_open >= self._requests_max:
            outcome = Ended(503, "The server has too many open requests.", code="overloaded")
            await send_ended(tagged, outcome, retry_after_s=self._retry_after_s)
            return
        self._num_open += 1
        try:
            await self._app(scope, receive, tagged)
        except asyncio.CancelledError:
            pass  # the server cuts what did not end in time; the connection closes, that says all
        finally:
            self._num_open -= 1

    def _read_headers(self, scope: Scope) -> tuple[str, bytes]:
        request = ""
        authorization = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                request = _UNFIT.sub("", value.decode("latin-1")[: 2 * _REQUEST_CHARS_MAX])
            elif name == b"authorization":
                authorization = value
        if not request:
            self._num_requests += 1
            request = f"req-{self._nonce}{self._num_requests:08x}"
        return request[:_REQUEST_CHARS_MAX], authorization

    def _tenant(self, authorization: bytes) -> str | None:
        """Give the tenant whose key was sent, or None; every key is compared, in a time that does
        not depend on what is wrong.
        """
        scheme, _, given = authorization.partition(b" ")
        digest = sha256(given.strip()).digest()
        matches = [hmac.compare_digest(digest, key) for key in self._keys]
        if not any(matches) or scheme.lower() != b"bearer":
            return None
        return digest.hex()[:_TENANT_CHARS]


def _no_key(authorization: bytes) -> Invalid:
    sentence = (
        "The API key is not valid."
        if authorization
        else "An API key was expected: send the header 'Authorization: Bearer KEY'."
    )
    return Invalid(sentence, code="invalid_api_key")
