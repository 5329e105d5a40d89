"""The wire between hosts: several connections to each host's data server.

A large move is cut into stripes, which as many connections as there may be pull one after another;
a small one is a request and an answer on one of them, by the calling thread alone. Bytes go from
mapped memory to the socket and from the socket to mapped memory.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
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
from tercet.wires.strips import check_parts, inside, stripes
from tercet.wires.sums import U64, fold
from tercet.wires.tcp_exchange import Into, exchange
from tercet.wires.tcp_pool import Connections
from tercet.wires.tcp_protocol import LENGTH, Broken, Request, encode

_STRIPE = 16 << 20
_WORKERS = 16
CONNECTIONS = min(4, os.cpu_count() or 1)
"""To one host for one move: more than there are cores only take turns."""


def host_of(memory: str) -> str:
    """The host in a memory's name."""
    return memory.partition("/")[0]


@dataclass(frozen=True, slots=True)
class _Stripe:
    """A piece of a move: where it is, and bytes [begin, begin + source.size) of the target."""

    source: Strip
    begin: int
    parts: slice


@dataclass(slots=True)
class _Carrying:
    """A move under way."""

    move: Move
    target: Region
    until: int
    left: deque[_Stripe]
    sums: U64
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
        part, verified = move.part_bytes, self._verified
        work = _Carrying(
            move=move,
            target=target,
            until=until_of(move.deadline),
            left=deque(
                _Stripe(some, begin, slice(begin // part, (begin + some.size) // part))
                for begin, some in stripes(move.source, _STRIPE, part)
            ),
            sums=np.zeros(move.source.size // part if verified else 0, np.uint64),
        )
        started = time.monotonic_ns()
        others = self._enlist(work, address) if len(work.left) > 1 else []
        self._pull(work, address)
        for other in others:
            if not other.cancel():
                other.result()
        if work.failure is not None:
            raise work.failure
        duration = time.monotonic_ns() - started - work.waited
        total = fold(work.sums) if verified else None
        if move.check is not None and verified and total != move.check:
            raise WireFailure(MoveEnd.CORRUPT, f"{move.source.size} bytes of {move.source.memory}")
        return Done(size=move.source.size, duration_ns=duration, fold=total)

    def _enlist(self, work: _Carrying, address: str) -> list["Future[None]"]:
        count = min(self._connections, len(work.left)) - 1
        try:
            return [self._workers.submit(self._pull, work, address) for _ in range(count)]
        except RuntimeError:  # closed meanwhile
            raise WireFailure(MoveEnd.GONE, "the wire is closed") from None

    def _pull(self, work: _Carrying, address: str) -> None:
        """Carry stripes until none is left or one failed."""
        while work.failure is None:
            try:
                stripe = work.left.popleft()
            except IndexError:
                return
            try:
                self._carry_stripe(work, stripe, address)
            except WireFailure as failure:
                work.failure = work.failure or failure

    def _carry_stripe(self, work: _Carrying, stripe: _Stripe, address: str) -> None:
        """Over a connection that was used before, once more over a new one if it proves dead."""
        for last in (False, True):
            connection, used = self._pool.take(address, work.until)
            try:
                self._exchange(connection, work, stripe)
            except TimeoutError:
                self._pool.drop(address, connection)
                raise WireFailure(MoveEnd.LATE, f"{work.move.source.memory} is slow") from None
            except Broken as broken:
                self._pool.drop(address, connection)
                if last or not used or self._pool.closed:
                    sentence = f"{work.move.source.memory}: {broken}"
                    raise WireFailure(MoveEnd.GONE, sentence) from None
            except WireFailure:
                self._pool.give(address, connection)
                raise
            else:
                self._pool.give(address, connection)
                return

    def _exchange(self, connection: socket.socket, work: _Carrying, stripe: _Stripe) -> None:
        """One request, its answer, and whether the answer is what was sent."""
        move = work.move
        summed = self._verified and move.check is None
        request = encode(
            Request(
                source=stripe.source,
                part_bytes=move.part_bytes,
                step=move.step,
                layer=move.layer,
                patience_ns=max(work.until - time.monotonic_ns(), 0),
                summed=summed,
            )
        )
        into = Into(
            region=work.target,
            strip=move.target,
            begin=stripe.begin,
            end=stripe.begin + stripe.source.size,
            part_bytes=move.part_bytes,
            sums=work.sums[stripe.parts],
            until=work.until,
        )
        answer = exchange(connection, LENGTH.pack(len(request)) + request, into)
        work.waited = max(work.waited, answer.waited_ns)
        if answer.end is not MoveEnd.DONE:
            raise WireFailure(answer.end, f"{move.source.memory}, says its host")
        if summed and fold(work.sums[stripe.parts]) != answer.fold:
            size = stripe.source.size
            raise WireFailure(MoveEnd.CORRUPT, f"{size} bytes of {move.source.memory}")
