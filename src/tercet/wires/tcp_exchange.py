"""Strips through sockets: by the native module in one call, or piece by piece in Python.

Both do the same; the native one sends, receives and sums without the interpreter's lock.
"""

import socket
from collections.abc import Callable

from msgspec import Struct

from tercet.devices.cpu.native import native
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Region
from tercet.wires.strips import pieces, stripes
from tercet.wires.sums import FOLD_OF_NOTHING, U64, fold, sums
from tercet.wires.tcp_protocol import (
    HEAD,
    TAIL,
    Broken,
    code_of,
    deadline_in,
    end_of,
    receive,
    send,
    views_of,
)

CHUNK = 256 << 10
"""Bytes that are summed while they are in the cache."""
LIMITED_CHUNK = 32 << 10
NATIVE = native()
_LATE, _BROKEN, _REFUSED = 1, 2, 3


class Into(Struct, frozen=True, kw_only=True):
    """Where an answer goes: bytes [begin, end) of a strip of a mapped memory."""

    region: Region
    strip: Strip
    begin: int
    end: int
    part_bytes: int
    summed: bool
    """What comes is summed."""
    sums: U64 | None
    """One for each part, to be filled; None: nobody asks."""
    until: int


class Answer(Struct, frozen=True):
    """What the other side said; only after DONE are there bytes."""

    end: MoveEnd
    waited_ns: int = 0
    said: int = 0
    """The fold, as the other side has it."""
    fold: int = 0
    """That of what came."""


def exchange(connection: socket.socket, request: bytes, into: Into) -> Answer:
    """Send a request, receive its answer. `Broken`, `TimeoutError`: the connection is of no use."""
    if NATIVE is None:
        return _exchanged_plainly(connection, request, into)
    strip, listed = into.strip, into.sums
    status, begun, waited, ended, said, found = NATIVE.exchange(
        connection.fileno(),
        request,
        (into.region.address, strip.start, strip.stride, strip.length),
        strip.units,
        into.begin,
        into.end,
        into.part_bytes,
        into.summed,
        0 if listed is None else listed.ctypes.data,
        into.until,
    )
    if status == _REFUSED:
        return Answer(end_of(begun))
    _raise_for(status)
    return Answer(end_of(ended), waited, said, found)


class Sending(Struct, frozen=True, kw_only=True):
    """How a strip is sent."""

    part_bytes: int
    summed: bool
    waited_ns: int
    stall_s: float
    take: Callable[[int], None] | None = None
    """Called before so many bytes are sent, where the link is limited."""


def send_strip(connection: socket.socket, region: Region, strip: Strip, form: Sending) -> int:
    """Send a head, all bytes of a strip and, unless lives have to be looked at first, the tail; the
    fold of the parts (if `summed`).
    """
    head = HEAD.pack(code_of(MoveEnd.DONE), strip.size, form.waited_ns)
    if NATIVE is None or form.take is not None:
        return _sent_plainly(connection, region, strip, (head, form))
    status, total = NATIVE.send_strip(
        connection.fileno(),
        head,
        (region.address, strip.start, strip.stride, strip.length),
        strip.units,
        form.part_bytes,
        form.summed,
        not strip.lives,
        int(form.stall_s * 1e9),
    )
    _raise_for(status)
    return int(total)


def _raise_for(status: int) -> None:
    if status == _LATE:
        raise TimeoutError
    if status == _BROKEN:
        raise Broken("the connection broke")


def _exchanged_plainly(connection: socket.socket, request: bytes, into: Into) -> Answer:
    head, tail = bytearray(HEAD.size), bytearray(TAIL.size)
    send(connection, [memoryview(request)], into.until)
    receive(connection, [memoryview(head)], into.until)
    code, promised, waited = HEAD.unpack(head)
    if end_of(code) is not MoveEnd.DONE:
        return Answer(end_of(code))
    if promised != into.end - into.begin:
        raise Broken(f"{promised} bytes instead of {into.end - into.begin}")
    chunk = max(CHUNK // into.part_bytes, 1) * into.part_bytes
    total = FOLD_OF_NOTHING
    for begin in range(into.begin, into.end, chunk):
        places = pieces(into.strip, begin, min(begin + chunk, into.end))
        receive(connection, views_of(into.region, places), into.until)
        if into.summed:
            total = _sum(into, places, (begin - into.begin) // into.part_bytes, total)
    receive(connection, [memoryview(tail)], into.until)
    code, said = TAIL.unpack(tail)
    return Answer(end_of(code), waited, said, total)


def _sum(into: Into, places: list[tuple[int, int]], at: int, total: int) -> int:
    for offset, length in places:
        piece = Strip("", offset, 0, length, b"\0\0\0\0")
        found = sums(into.region.address, piece, into.part_bytes)
        if into.sums is not None:
            into.sums[at : at + len(found)] = found
        at += len(found)
        total = fold(found, total)
    return total


def _sent_plainly(
    connection: socket.socket, region: Region, strip: Strip, how: tuple[bytes, Sending]
) -> int:
    head, form = how
    total, waiting = FOLD_OF_NOTHING, [memoryview(head)]
    chunk = CHUNK if form.take is None else LIMITED_CHUNK
    for _, some in stripes(strip, chunk, form.part_bytes):
        if form.summed:
            total = fold(sums(region.address, some, form.part_bytes), total)
        if form.take is not None:
            form.take(some.size)
        views = [*waiting, *views_of(region, pieces(some, 0, some.size))]
        send(connection, views, deadline_in(form.stall_s), more=True)
        waiting = []
    if not strip.lives:
        tail = TAIL.pack(code_of(MoveEnd.DONE), total if form.summed else 0)
        send(connection, [*waiting, memoryview(tail)], deadline_in(form.stall_s))
    return total
