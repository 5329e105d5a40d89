"""What client and server of the TCP wire say to each other.

server                                client
  ── magic, challenge (40) ────────────▶
  ◀── nonce, proof (64) ────────────────    proof over (dial, challenge, nonce)
  ── proof (32) ───────────────────────▶    proof over (listen, challenge, nonce)
  ◀── length (4), request (msgpack) ────    one at a time
  ── head: end, size, waited (24) ─────▶    not DONE: nothing follows
  ── bytes (size) ─────────────────────▶
  ── tail: end, fold (16) ─────────────▶    STALE: the source began another life meanwhile
"""

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Region
from tercet.wires.strips import view_at

MAGIC = b"TCTWIRE1"
HEAD = struct.Struct("<B7xQQ")
TAIL = struct.Struct("<B7xQ")
LENGTH = struct.Struct("<I")
REQUEST_BYTES_MAX = 1 << 20
HANDSHAKE_S = 2.0
TICK_S = 0.1
"""How long a system call blocks before deadlines are looked at."""
_UNPACED = b"cubic"
"""Pacing by timers (BBR) is for long ways: between hosts of a cluster a round trip is shorter than
what a timer is late by.
"""
_NONCE_BYTES = 32
_PIECES_MAX = 1024
"""IOV_MAX"""
_ENDS = tuple(MoveEnd)


class Request(Struct, frozen=True, array_like=True):
    """Send me these bytes."""

    source: Strip
    part_bytes: int
    step: int
    layer: int
    patience_ns: int
    """How long the asker waits for the layer."""
    summed: bool
    """The tail has the fold of the parts."""


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Request).decode


class Broken(Exception):  # noqa: N818
    """The connection is of no use any more: it ended, stalled, or somebody lied."""


def code_of(end: MoveEnd) -> int:
    return _ENDS.index(end)


def end_of(code: int) -> MoveEnd:
    """What a code means; `Broken` for one that means nothing."""
    if code >= len(_ENDS):
        raise Broken(f"end {code}")
    return _ENDS[code]


def prepare(connection: socket.socket) -> None:
    """Small messages go at once, no system call lasts longer than a tick, and nobody paces."""
    connection.setblocking(True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tick = struct.pack("ll", 0, int(TICK_S * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tick)
    unpace(connection)


def unpace(connection: socket.socket) -> None:
    """No timer holds back what is sent; who may not choose keeps what the system has."""
    with contextlib.suppress(OSError):
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)[:3] == b"bbr":
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)


def greet(connection: socket.socket, secret: bytes) -> None:
    """Server's side of the proof; `Broken` unless the client knows the secret."""
    challenge = secrets.token_bytes(_NONCE_BYTES)
    until = deadline_in(HANDSHAKE_S)
    send(connection, [memoryview(MAGIC + challenge)], until)
    said = memoryview(bytearray(_NONCE_BYTES + 32))
    receive(connection, [said], until)
    nonce, proof = bytes(said[:_NONCE_BYTES]), bytes(said[_NONCE_BYTES:])
    if not hmac.compare_digest(_proof(secret, b"dial", challenge + nonce), proof):
        raise Broken("a client that does not know the secret")
    send(connection, [memoryview(_proof(secret, b"listen", challenge + nonce))], until)


def introduce(connection: socket.socket, secret: bytes, until: int = 0) -> None:
    """Client's side of the proof, before `until`; `Broken` unless the server knows the secret."""
    until = min(until or deadline_in(HANDSHAKE_S), deadline_in(HANDSHAKE_S))
    said = memoryview(bytearray(len(MAGIC) + _NONCE_BYTES))
    receive(connection, [said], until)
    if bytes(said[: len(MAGIC)]) != MAGIC:
        raise Broken("not a server of this protocol")
    challenge, nonce = bytes(said[len(MAGIC) :]), secrets.token_bytes(_NONCE_BYTES)
    send(connection, [memoryview(nonce + _proof(secret, b"dial", challenge + nonce))], until)
    proof = memoryview(bytearray(32))
    receive(connection, [proof], until)
    if not hmac.compare_digest(_proof(secret, b"listen", challenge + nonce), bytes(proof)):
        raise Broken("a server that does not know the secret")


def deadline_in(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def send(
    connection: socket.socket, views: Sequence[memoryview], until: int, *, more: bool = False
) -> None:
    """All of it, without a copy in this process; `more` follows at once."""
    flags = socket.MSG_MORE if more else 0
    _through(lambda some: connection.sendmsg(some, (), flags), views, until)


def receive_some(connection: socket.socket, until: int, size: int = 4096) -> bytes:
    """What there is, at least a byte."""
    while True:
        try:
            said = connection.recv(size)
        except (BlockingIOError, InterruptedError):
            if time.monotonic_ns() > until:
                raise TimeoutError from None
            continue
        if not said:
            raise Broken("the other side closed")
        return said


def receive(
    connection: socket.socket,
    views: Sequence[memoryview],
    until: int,
    *,
    first: Callable[[int], bool] | None = None,
) -> None:
    """Fill the views, in order. `first` hears how much came first, and may say that this is all."""
    _through(lambda some: connection.recvmsg_into(some)[0], views, until, first)


def _through(
    call: Callable[[list[memoryview]], int],
    views: Sequence[memoryview],
    until: int,
    first: Callable[[int], bool] | None = None,
) -> None:
    left, at, done = [view for view in views if len(view)], 0, 0
    while at < len(left):
        try:
            count = call(left[at : at + _PIECES_MAX])
        except (BlockingIOError, InterruptedError):
            count = -1
        except OSError as error:
            raise Broken(str(error)) from None
        if count == 0:
            raise Broken("the other side closed")
        done += max(count, 0)
        while at < len(left) and count >= len(left[at]):
            count -= len(left[at])
            at += 1
        if count > 0:
            left[at] = left[at][count:]
        if first is not None and done >= HEAD.size:
            if first(done):
                return
            first = None
        if at < len(left) and time.monotonic_ns() > until:
            raise TimeoutError


_view = lru_cache(maxsize=256)(view_at)


def views_of(region: Region, places: Sequence[tuple[int, int]]) -> list[memoryview]:
    """Pieces of a mapped memory; the caller holds it."""
    whole = _view(region.address, region.size)
    return [whole[offset : offset + length] for offset, length in places]


def _proof(secret: bytes, side: bytes, fresh: bytes) -> bytes:
    return hmac.new(secret, b"wire\0" + side + b"\0" + fresh, hashlib.sha256).digest()
