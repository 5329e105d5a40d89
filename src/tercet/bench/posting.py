"""A lean HTTP/1.1 client: a load generator that is slower than the server measures itself.

Bodies are handed on inside the callback that received them, without a task's turn in between, so
an arrival is timed when its bytes are here.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from tercet.base.errors import Invalid

IDLE_MAX = 512
OnBody = Callable[[int, bytes], None]
"""Takes the status and a piece of the body."""


@dataclass(frozen=True)
class Origin:
    """Where requests go."""

    host: str
    port: int
    path: str
    """Before every route; no slash at its end."""
    secure: bool

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Read a base URL; `Invalid` if it is none."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise Invalid(f"{url!r} is no URL of a server (http://host:port).", parameter="url")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), parts.path.rstrip("/"), secure)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Poster:
    """Posts JSON to one origin, over connections that are used again."""

    def __init__(self, origin: Origin, *, api_key: str | None) -> None:
        self._origin = origin
        self._idle: list[_Connection] = []
        self._tls = ssl.create_default_context() if origin.secure else None
        key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._headers = (
            f"host: {origin.authority}\r\ncontent-type: application/json\r\naccept: */*\r\n{key}"
        )

    async def post(self, route: str, body: bytes, on_body: OnBody) -> int:
        """Send a request and wait for its answer's end; its status.

        `OSError` if there is no connection or it ends before the answer does.
        """
        head = (
            f"POST {self._origin.path}{route} HTTP/1.1\r\n{self._headers}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        connection = await self._connection()
        try:
            status = await connection.exchange(head.encode() + body, on_body)
        except BaseException:
            connection.close()
            raise
        if connection.reusable and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        origin = self._origin
        _, made = await loop.create_connection(_Connection, origin.host, origin.port, ssl=self._tls)
        return made


class _Connection(asyncio.Protocol):
    """One connection, one request at a time; the parser calls the `on_` methods."""

    def __init__(self) -> None:
        self.reusable = True
        self._transport: asyncio.Transport | None = None
        self._on_body: OnBody | None = None
        self._answer: asyncio.Future[int] | None = None
        self._parser = httptools.HttpResponseParser(self)

    async def exchange(self, request: bytes, on_body: OnBody) -> int:
        """Give the status once the whole answer came."""
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._on_body = on_body
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's stream transports are none of asyncio's classes.
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"an answer that is not HTTP: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._transport = None
        self._fail(ConnectionResetError(f"the connection ended: {exc or 'closed'}"))

    def on_body(self, body: bytes) -> None:
        if self._on_body is not None:
            self._on_body(self._parser.get_status_code(), body)

    def on_message_complete(self) -> None:
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._parser.get_status_code())

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
