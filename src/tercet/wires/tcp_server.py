"""Serves the memories of this host to those who know the cluster's secret: reads only.

A thread for each connection, a request at a time. Whoever is slow, says half a request or asks for
too much is cut off; a memory that goes away is unmapped after its last reader (`Regions`).
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Region, WireFailure
from tercet.wires.fences import PATIENCE_NS, check_lives, wait_for_layer
from tercet.wires.regions import Regions
from tercet.wires.strips import inside
from tercet.wires.tcp_exchange import Sending, send_strip
from tercet.wires.tcp_protocol import (
    HEAD,
    LENGTH,
    REQUEST_BYTES_MAX,
    TAIL,
    Broken,
    Request,
    code_of,
    deadline_in,
    decode,
    greet,
    prepare,
    receive_some,
    send,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A link that is slower than the machine's: for tests and demonstrations. 0: no limit."""

    bytes_per_s: float = 0.0
    """Of all connections together."""
    latency_s: float = 0.0
    """Before each answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one client may ask for, and how slow it may be."""

    connections: int = 256
    request_bytes: int = 1 << 30
    idle_s: float = 300.0
    half_request_s: float = 2.0
    stall_s: float = 10.0


class TcpServer:
    """Started by `serve`, ended by `close`; regions may come and go meanwhile."""

    def __init__(
        self,
        regions: Regions,
        secret: bytes,
        *,
        limits: Limits = Limits(),
        bounds: Bounds = Bounds(),
    ) -> None:
        self._regions = regions
        self._secret = secret
        self._limits = limits
        self._bounds = bounds
        self._link = _Link(limits.bytes_per_s)
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._closed = False

    def serve(self, address: str = "127.0.0.1", port: int = 0) -> int:
        """Take connections from now on; the port."""
        listener = socket.create_server((address, port), backlog=64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="wires", daemon=True).start()
        number: int = listener.getsockname()[1]
        return number

    def close(self) -> None:
        """No connection lives on."""
        self._closed = True
        with self._lock:
            ends = [*self._connections.values()]
        if self._listener is not None:
            ends.append(self._listener)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if self._listener is not None:
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # out of descriptors: those who are served go first
                continue
            with self._lock:
                full = self._closed or len(self._connections) >= self._bounds.connections
                if not full:
                    self._connections[connection.fileno()] = connection
            if full:
                connection.close()
                continue
            serve = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            try:
                serve.start()
            except RuntimeError:  # no more threads: those who are served go first
                self._end(connection)
                time.sleep(0.05)

    def _serve(self, connection: socket.socket) -> None:
        try:
            prepare(connection)
            greet(connection, self._secret)
            while not self._closed:
                self._answer(connection, self._request(connection))
        except (Broken, TimeoutError, OSError, msgspec.MsgspecError, RecursionError):
            pass  # a client that left, stalls or talks nonsense: it knows why
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            del self._connections[connection.fileno()]
        connection.close()

    def _request(self, connection: socket.socket) -> Request:
        said = receive_some(connection, deadline_in(self._bounds.idle_s))
        until = deadline_in(self._bounds.half_request_s)
        while len(said) < LENGTH.size:
            said += receive_some(connection, until)
        (size,) = LENGTH.unpack_from(said)
        if size > REQUEST_BYTES_MAX:
            raise Broken(f"a request of {size} bytes")
        while len(said) < LENGTH.size + size:
            said += receive_some(connection, until, LENGTH.size + size - len(said))
        return decode(said[LENGTH.size :])

    def _answer(self, connection: socket.socket, request: Request) -> None:
        if self._limits.latency_s:
            time.sleep(self._limits.latency_s)
        try:
            with self._regions.hold(request.source.memory) as region:
                waited = self._wait(region, request)
                self._send(connection, region, request, waited)
        except WireFailure as failure:
            head = memoryview(HEAD.pack(code_of(failure.end), 0, 0))
            send(connection, [head], deadline_in(self._bounds.stall_s))

    def _wait(self, region: Region, request: Request) -> int:
        """Everything that can be said before the first byte."""
        source = request.source
        if len(source.units) % 4 or len(source.lives) % 4:
            raise WireFailure(MoveEnd.GONE, "half a unit")
        inside(source, region.size)
        straddles = request.part_bytes <= 0 or source.length % request.part_bytes
        if source.size > self._bounds.request_bytes or straddles:
            raise WireFailure(MoveEnd.GONE, f"{source.size} bytes of {request.part_bytes} at once")
        started = time.monotonic_ns()
        patience = min(request.patience_ns, PATIENCE_NS)
        point = (request.step, request.layer)
        wait_for_layer(region, point, started + patience, lambda: not self._stands(region))
        check_lives(region, source)
        return time.monotonic_ns() - started

    def _stands(self, region: Region) -> bool:
        return not self._closed and self._regions.stands(region)

    def _send(
        self, connection: socket.socket, region: Region, request: Request, waited: int
    ) -> None:
        source = request.source
        form = Sending(
            part_bytes=request.part_bytes,
            summed=request.summed,
            waited_ns=waited,
            stall_s=self._bounds.stall_s,
            take=self._link.take if self._limits.bytes_per_s else None,
        )
        total = send_strip(connection, region, source, form)
        if not source.lives:
            return
        tail = TAIL.pack(code_of(self._after(region, source)), total if request.summed else 0)
        send(connection, [memoryview(tail)], deadline_in(self._bounds.stall_s))

    def _after(self, region: Region, source: Strip) -> MoveEnd:
        try:
            check_lives(region, source)
        except WireFailure as failure:
            return failure.end
        return MoveEnd.DONE


class _Link:
    """So many bytes a second, for all who send."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int) -> None:
        """Return when the link would have carried them."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + count / self._rate
            wait = self._free_at - self._clock()
        if wait > 0:
            time.sleep(wait)
