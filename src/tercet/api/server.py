"""The HTTP server of one front, in an event loop that somebody else runs."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tercet.api.config import ApiConfig
from tercet.api.errors import error_body

_KEEP_ALIVE_S = 75
_BACKLOG = 2048


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with a bound on how long, and how late, a request's head may be.

    Without it, headers that never end would be kept in memory, or waited for, for ever.
    """

    head_bytes_max = ApiConfig.head_bytes_max
    head_timeout_s = ApiConfig.head_timeout_s
    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._in_head = True
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_came()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self.head_bytes_max and not self.transport.is_closing():
            self.send_400_response(f"The head is longer than {self.head_bytes_max} bytes.")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the shape of every other refusal, and close."""
        body = error_body(400, msg, code="invalid_http", parameter=None)
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close"
        length = b"\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(head + length + body)
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)
            self._head_timer = timer

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded_protocol(config: ApiConfig) -> type[BoundedProtocol]:
    """Give the protocol with the limits of a configuration."""
    limits = {"head_bytes_max": config.head_bytes_max, "head_timeout_s": config.head_timeout_s}
    return type("ConfiguredProtocol", (BoundedProtocol,), limits)


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """Serves an application on a listening socket until it is closed."""

    def __init__(
        self, app: ASGIApp, sock: socket.socket, *, config: ApiConfig | None = None
    ) -> None:
        self._socket = sock
        self._server = _Server(
            uvicorn.Config(
                app,
                http=bounded_protocol(config or ApiConfig()),
                ws="none",
                lifespan="off",
                access_log=False,
                proxy_headers=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                backlog=_BACKLOG,
            )
        )
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Serve from now on; requests are taken when this returns."""
        self._running = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._socket])
        )
        while not self._server.started:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.005)

    async def close(self, *, within_s: float) -> None:
        """Take no more connections, let open answers end within the time, then cut them."""
        if self._running is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait([self._running], timeout=within_s)
        if not done:
            self._server.force_exit = True
            await asyncio.wait([self._running], timeout=1.0)
