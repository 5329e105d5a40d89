"""Length-prefixed frames over one stream: all frames of a loop turn leave in one write.

+------------------+-----------------+------------------+---
| length, 4 bytes, | payload, length | length, 4 bytes  | ...
| little endian    | bytes           |                  |
+------------------+-----------------+------------------+---
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

_PREFIX = 4


@dataclass(frozen=True)
class FrameLimits:
    """What one connection may hold (I6)."""

    frame_bytes_max: int = 32 << 20
    """A longer frame ends the connection; the longest prompt of a task fits many times."""
    unsent_bytes_max: int = 64 << 20
    """A peer that lets more than this pile up does not read: the connection ends."""


class Frames(asyncio.Protocol):
    """One end of a stream of frames; callbacks are called in the loop, `on_end` exactly once."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rest = bytearray()
        """The beginning of a frame."""
        self._wanted = _PREFIX
        """Bytes that the rest must have before it is worth a look."""
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._closing = False
        self.frame_bytes_max = limits.frame_bytes_max
        """May be less for a while: to who has not proved itself yet."""
        self.bytes_in = 0
        """So many have come: who looks twice sees whether the peer still sends."""
        self.on_open: Callable[[], None] = _nothing
        self.on_frame: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _nothing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's stream transports are none of asyncio's classes.
        self._transport = transport  # type: ignore[assignment]
        self._loop = asyncio.get_running_loop()
        if self._closing:
            self.abort()
        else:
            self.on_open()

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        self._wanted = _PREFIX
        start, size = 0, len(data)
        while size - start >= _PREFIX:
            length = int.from_bytes(data[start : start + _PREFIX], "little")
            if length > self.frame_bytes_max:
                self.abort()
                return
            end = start + _PREFIX + length
            if end > size:
                self._wanted = end - start
                break
            if self._closing:
                return
            self.on_frame(data[start + _PREFIX : end])
            start = end
        self._rest += memoryview(data)[start:]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._closing = True
        self._transport = None
        self._outgoing.clear()
        self._rest.clear()
        self.on_end()

    def send(self, payload: bytes) -> None:
        """Queue one frame for the end of this turn; dropped once the connection ends."""
        if self._closing or self._transport is None or self._loop is None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(len(payload).to_bytes(_PREFIX, "little"))
        self._outgoing.append(payload)
        self._outgoing_bytes += _PREFIX + len(payload)
        unsent = self._outgoing_bytes + self._transport.get_write_buffer_size()
        if unsent > self._limits.unsent_bytes_max:
            self.abort()

    def close(self) -> None:
        """End the connection after what was queued has left."""
        if self._transport is not None and not self._closing:
            self._flush()
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        """End the connection now, or as soon as it is made; what was not sent is lost."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None or self._closing or not self._outgoing:
            return
        batch = b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._transport.write(batch)


def _nothing() -> None:
    return


def _ignore(_: bytes) -> None:
    return
