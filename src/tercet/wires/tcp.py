"""The wire between hosts: several connections to each host's data server.

A large move is cut into stripes, which as many connections as there may be pull one after another;
a small one is a request and an answer on one of them, by the calling thread alone. Bytes go from
mapped memory to the socket and from the socket to mapped memory.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tercet.base.errors import must
from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Done, Plane, Region, WireFailure
from tercet.wires.fences import until_of
from tercet.wires.regions import Regions
from tercet.wires.strips import check_parts, cut, inside
from tercet.wires.sums import U64, fold
from tercet.wires.tcp_exchange import Into, exchange
from tercet.wires.tcp_pool import Connections
from tercet.wires.tcp_protocol import LENGTH, Broken, Request, encode

_ALONE = 8 << 20
"""A move of so many bytes is one request."""
_STRIPE_MIN, _STRIPE_MAX = 4 << 20, 256 << 20
_WORKERS = 16
CONNECTIONS = min(4, os.cpu_count() or 1)
"""To one host for one move: more than there are cores only take turns."""


def host_of(memory: str) -> str:
    """The host in a memory's name."""
    return memory.partition("/")[0]


@dataclass(slots=True)
class _Carrying:
    """A move under way."""

    move: Move
    target: Region
    address: str
    until: int
    left: deque[tuple[int, Strip]]
    """Stripes that nobody asked for yet: the number of the first byte, and the source."""
    sums: U64 | None
    """Of all parts; None where there is one stripe, or nobody asks."""
    waited: int = 0
    failure: WireFailure | None = None


class TcpWire:
    """`hosts` gives the address (`address:port`) of a host's data server, or nothing.

    `verified` sums what arrives, whatever a move says: without it bytes are believed.
    """

    name = "tcp"
    plane = Plane.SCALE_OUT

    def __init__(
        self,
        regions: Regions,
        hosts: Callable[[str], str],
        *,
        secret: bytes,
        connections: int = CONNECTIONS,
        verified: bool = True,
    ) -> None:
        self._regions = regions
        self._hosts = hosts
        self._pool = Connections(secret)
        self._connections = connections
        self._verified = verified
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="wire")

    def reaches(self, move: Move) -> bool:
        """Whether the target is ours and the source's host has a data server."""
        return move.target.memory in self._regions and bool(
            self._hosts(host_of(move.source.memory))
        )

    def carry(self, move: Move) -> Done:
        """Ask for all stripes and receive them in their places."""
        address = self._hosts(host_of(move.source.memory))
        if not address:
            raise WireFailure(MoveEnd.GONE, f"no data server for {move.source.memory}")
        with self._regions.hold(move.target.memory) as target:
            must(target.writable, f"a move into {target.memory}, which is not ours")
            check_parts(move)
            inside(move.target, target.size)
            return self._carry(move, target, address)

    def close(self) -> None:
        """Connections are cut: what they carry fails as GONE."""
        self._pool.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _carry(self, move: Move, target: Region, address: str) -> Done:
        until, part = until_of(move.deadline), move.part_bytes
        started = time.monotonic_ns()
        work = _Carrying(move, target, address, until, deque(), None)
        if move.source.size <= _ALONE:
            total = self._carry_stripe(work, 0, move.source)
        else:
            work.left.extend(cut(move.source, _sizes(move.source.size, self._connections), part))
            total = self._carry_all(work, np.zeros(move.source.size // part, np.uint64))
        duration = time.monotonic_ns() - started - work.waited
        if move.check is not None and self._verified and total != move.check:
            raise WireFailure(MoveEnd.CORRUPT, f"{move.source.size} bytes of {move.source.memory}")
        return Done(
            size=move.source.size, duration_ns=duration, fold=total if self._verified else None
        )

    def _carry_all(self, work: _Carrying, sums: U64) -> int:
        """By several connections; the fold of all parts."""
        work.sums = sums if self._verified else None
        others = self._enlist(work)
        self._pull(work)
        for other in others:
            if not other.cancel():
                other.result()
        if work.failure is not None:
            raise work.failure
        return fold(sums)

    def _enlist(self, work: _Carrying) -> list["Future[None]"]:
        count = min(self._connections, len(work.left)) - 1
        try:
            return [self._workers.submit(self._pull, work) for _ in range(count)]
        except RuntimeError:  # closed meanwhile
            raise WireFailure(MoveEnd.GONE, "the wire is closed") from None

    def _pull(self, work: _Carrying) -> None:
        """Carry stripes until none is left or one failed."""
        while work.failure is None:
            try:
                begin, source = work.left.popleft()
            except IndexError:
                return
            try:
                self._carry_stripe(work, begin, source)
            except WireFailure as failure:
                work.failure = work.failure or failure

    def _carry_stripe(self, work: _Carrying, begin: int, source: Strip) -> int:
        """Over a connection that was used before, once more over a new one if it proves dead; the
        fold of what came.
        """
        address, again = work.address, False
        while True:
            connection, used = self._pool.take(address, work.until)
            try:
                total = self._exchange(connection, work, begin, source)
            except TimeoutError:
                self._pool.drop(address, connection)
                raise WireFailure(MoveEnd.LATE, f"{source.memory} is slow") from None
            except Broken as broken:
                self._pool.drop(address, connection)
                if again or not used or self._pool.closed:
                    raise WireFailure(MoveEnd.GONE, f"{source.memory}: {broken}") from None
                again = True
            except WireFailure:
                self._pool.give(address, connection)
                raise
            else:
                self._pool.give(address, connection)
                return total

    def _exchange(
        self, connection: socket.socket, work: _Carrying, begin: int, source: Strip
    ) -> int:
        """One request, its answer, and whether the answer is what was sent."""
        move, part, end = work.move, work.move.part_bytes, begin + source.size
        summed = self._verified and move.check is None
        request = encode(
            Request(
                source=source,
                part_bytes=part,
                step=move.step,
                layer=move.layer,
                patience_ns=max(work.until - time.monotonic_ns(), 0),
                summed=summed,
            )
        )
        into = Into(
            region=work.target,
            strip=move.target,
            begin=begin,
            end=end,
            part_bytes=part,
            summed=self._verified,
            sums=None if work.sums is None else work.sums[begin // part : end // part],
            until=work.until,
        )
        answer = exchange(connection, LENGTH.pack(len(request)) + request, into)
        work.waited = max(work.waited, answer.waited_ns)
        if answer.end is not MoveEnd.DONE:
            raise WireFailure(answer.end, f"{source.memory}, says its host")
        if summed and answer.fold != answer.said:
            raise WireFailure(MoveEnd.CORRUPT, f"{source.size} bytes of {source.memory}")
        return answer.fold


def _sizes(left: int, connections: int) -> Iterator[int]:
    """Of stripes: long ones first, so that requests are few; then shorter ones, so that all
    connections end at about the same time.
    """
    while True:
        size = min(max(left * 3 // 4 // connections, _STRIPE_MIN), _STRIPE_MAX)
        for _ in range(connections):
            yield size
        left -= size * connections
