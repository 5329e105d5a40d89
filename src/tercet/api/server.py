"""The HTTP server of one front, in an event loop that somebody else runs."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from tercet.api.config import ApiConfig
from tercet.api.protocol import bounded_protocol

_BACKLOG = 2048


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """Serves an application on a listening socket until it is closed."""

    def __init__(self, app: ASGIApp, sock: socket.socket, *, config: ApiConfig) -> None:
        self._socket = sock
        self._server = _Server(
            uvicorn.Config(
                app,
                http=bounded_protocol(config),
                ws="none",
                lifespan="off",
                access_log=False,
                proxy_headers=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=config.keep_alive_s,
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
