"""HTTP/1.1 on one connection: uvicorn's protocol, with a bound on everything that can be late.

head   -- too long, too late ----> 400, closed
body   -- (the reader's bounds) -> 413, 408; the rest is dropped for as long as keep-alive lasts
answer -- not taken ------------> cut
client -- gone -----------------> every request of the connection learns of it, queued ones too
"""

import asyncio
import select
import socket

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tercet.api.config import ApiConfig
from tercet.api.errors import error_body

_LOOK_S = 0.2
"""How often a connection that is not read, since requests wait in it, is asked if it still is."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class _Refused(Exception):  # noqa: N818
    """Ends the parsing of a request that is not even looked at."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. The limits are set by `bounded_protocol`."""

    head_bytes_max = ApiConfig.head_bytes_max
    head_timeout_s = ApiConfig.head_timeout_s
    write_timeout_s = ApiConfig.write_timeout_s
    _head_bytes = 0
    """Of whole pieces of data that held nothing but a part of the present head."""
    _field_bytes = 0
    """Of the complete fields of the present head."""
    _trailer_bytes = 0
    _in_head = True
    _in_message = False
    _num_begun = 0
    """Requests that began in the data that is being parsed."""
    _repeating = False
    """A parser is told of the head of a request that is known already."""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _look_timer: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._taken()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._unset_keepalive_if_required()
        self._tell_gone()
        super().connection_lost(exc)

    def _tell_gone(self) -> None:
        """Let every unanswered request know; uvicorn itself tells only the newest."""
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def _unanswered(self) -> list[RequestResponseCycle]:
        waiting = [cycle for cycle, _ in self.pipeline]
        running = self._answering
        if running is not None and not running.response_complete:
            waiting.append(running)
        return waiting

    def _cut(self) -> None:
        self._tell_gone()
        self.transport.abort()

    # what comes in

    def data_received(self, data: bytes) -> None:
        self._num_begun = 0
        was_in_message = self._in_message
        rest: bytes = data
        try:
            while rest:
                rest = self._parse(rest)
        except httptools.HttpParserError as error:
            refusal = error.__context__
            why = str(refusal) if isinstance(refusal, _Refused) else "This is not valid HTTP/1.1."
            self.send_400_response(why)
            return
        if self._in_head and was_in_message + self._num_begun <= 1:
            self._head_bytes += len(data)
        if self._in_head and max(self._head_bytes, self._field_bytes) > self.head_bytes_max:
            self.send_400_response(self._too_long())

    def _parse(self, data: bytes) -> bytes:
        """Parse; give what is left after a request to change to another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade()
            return data[upgrade.args[0] :]
        return b""

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1, as if nothing else had been offered.

        The parser took the request for one without a body. Some clients (Java's) offer HTTP/2 with
        every first request, so there may well be one: a new parser is told of its framing.
        """
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        self.cycle.more_body = bool(framing)
        head = b"".join(b"%s: %s\r\n" % pair for pair in framing)
        self.parser = httptools.HttpRequestParser(self)
        self._repeating = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        finally:
            self._repeating = False

    def on_message_begin(self) -> None:
        if self._repeating:
            return
        self._unset_keepalive_if_required()
        self._head_bytes = self._field_bytes = self._trailer_bytes = 0
        self._in_head = self._in_message = True
        self._num_begun += 1
        self._await_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._repeating:
            self._field_bytes += len(url)
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._repeating:
            return
        size = len(name) + len(value) + 4
        if self._in_head:
            self._field_bytes += size
            super().on_header(name, value)
            return
        self._trailer_bytes += size  # nobody reads them
        if self._trailer_bytes > self.head_bytes_max:
            raise _Refused(f"The trailers are longer than {self.head_bytes_max} bytes.")

    def on_headers_complete(self) -> None:
        if self._repeating:
            return
        self._in_head = False
        self._head_came()
        self._unset_keepalive_if_required()
        if self._field_bytes > self.head_bytes_max:
            raise _Refused(self._too_long())
        super().on_headers_complete()
        if self.pipeline and self._look_timer is None:
            self._look_timer = self.loop.call_later(_LOOK_S, self._look)

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def _too_long(self) -> str:
        return f"The head is longer than {self.head_bytes_max} bytes."

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the shape of every other refusal, and close.

        Where an answer is still due to an earlier request, or begun, there is no place for a
        refusal.
        """
        if self.transport.is_closing():
            return
        due = self._unanswered()
        broken = [cycle for cycle in due if cycle.more_body and not cycle.response_started]
        if due != broken:
            self._cut()
            return
        self._tell_gone()
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

    # requests that wait for the answer of an earlier one

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _look(self) -> None:
        """Ask the system whether the client is there: what is not read does not show its end."""
        self._look_timer = None
        if not self.pipeline or self.transport.is_closing():
            return
        connection: socket.socket = self.transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLRDHUP)
        if poll.poll(0):
            self._cut()
            return
        self._look_timer = self.loop.call_later(_LOOK_S, self._look)

    # what goes out

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def _await_taking(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.write_timeout_s, self._write_is_late, size)

    def _taken(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _write_is_late(self, size_before: int) -> None:
        """Cut a client that took nothing at all meanwhile; a slow one may go on."""
        self._write_timer = None
        if self.transport.get_write_buffer_size() < size_before:
            self._await_taking()
        else:
            self._cut()


def bounded_protocol(config: ApiConfig) -> type[BoundedProtocol]:
    """Give the protocol with the limits of a configuration."""
    limits = {
        "head_bytes_max": config.head_bytes_max,
        "head_timeout_s": config.head_timeout_s,
        "write_timeout_s": config.write_timeout_s,
    }
    return type("ConfiguredProtocol", (BoundedProtocol,), limits)
