"""Connections of the TCP wire: proven, kept while idle, at most so many to a host."""

import contextlib
import socket
import threading
import time

from tercet.messages.events import MoveEnd
from tercet.wires.contract import WireFailure
from tercet.wires.tcp_protocol import HANDSHAKE_S, Broken, introduce, prepare

_MOST = 32
"""To one host: further movers wait for one of these."""
_LOOK_S = 0.1
IDLE_NS = 120_000_000_000
"""Older idle ones end: their host may be gone, or have another address. A server waits longer."""


class Connections:
    """Used by many threads; a connection belongs to who took it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._idle: dict[str, list[tuple[int, socket.socket]]] = {}
        """Since when, and which; the last is used first."""
        self._swept_at = time.monotonic_ns()
        self._busy: dict[str, dict[int, socket.socket]] = {}
        self._dialing: dict[str, int] = {}
        self.closed = False

    def take(self, address: str, until: int) -> tuple[socket.socket, bool]:
        """A connection, and whether it was used before."""
        with self._lock:
            while not self.closed:
                if idle := self._idle.get(address):
                    _, connection = idle.pop()
                    self._busy.setdefault(address, {})[connection.fileno()] = connection
                    return connection, True
                busy = len(self._busy.get(address, ())) + self._dialing.get(address, 0)
                if busy < _MOST:
                    break
                if time.monotonic_ns() > until:
                    raise WireFailure(MoveEnd.LATE, f"all connections with {address} are in use")
                self._waiting += 1
                self._changed.wait(_LOOK_S)
                self._waiting -= 1
            if self.closed:
                raise WireFailure(MoveEnd.GONE, "the wire is closed")
            self._sweep()
            self._dialing[address] = self._dialing.get(address, 0) + 1
        dialed: socket.socket | None = None
        try:
            dialed = self._dial(address, until)
        finally:
            with self._lock:
                self._dialing[address] -= 1
                if not self._dialing[address]:
                    del self._dialing[address]
                if dialed is not None:
                    self._busy.setdefault(address, {})[dialed.fileno()] = dialed
                self._changed.notify()
        return dialed, False

    def give(self, address: str, connection: socket.socket) -> None:
        """It is as it was after the proof: the next one may use it."""
        with self._lock:
            self._leave(address, connection)
            now = time.monotonic_ns()
            if self.closed:
                connection.close()
            else:
                self._idle.setdefault(address, []).append((now, connection))
            if now - self._swept_at > IDLE_NS:
                self._sweep()
            if self._waiting:
                self._changed.notify()

    def drop(self, address: str, connection: socket.socket) -> None:
        """It is of no use any more, and those that idle may be as old: none of them is kept."""
        with self._lock:
            self._leave(address, connection)
            connection.close()
            for _, one in self._idle.pop(address, ()):
                one.close()
            self._changed.notify()

    def close(self) -> None:
        """Idle ones end; those in use are cut."""
        with self._lock:
            self.closed = True
            for idle in self._idle.values():
                for _, one in idle:
                    one.close()
            self._idle.clear()
            for busy in self._busy.values():
                for one in busy.values():
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

    def _leave(self, address: str, connection: socket.socket) -> None:
        busy = self._busy[address]
        del busy[connection.fileno()]
        if not busy:
            del self._busy[address]

    def _sweep(self) -> None:
        """End idle ones that are of no use any more, whatever their address."""
        self._swept_at = time.monotonic_ns()
        idle, self._idle = self._idle, {}
        for address, those in idle.items():
            for since, one in those:
                if self._swept_at - since < IDLE_NS and _stands(one):
                    self._idle.setdefault(address, []).append((since, one))
                else:
                    one.close()

    def _dial(self, address: str, until: int) -> socket.socket:
        host, _, port = address.rpartition(":")
        left = max((until - time.monotonic_ns()) / 1e9, 0.001)
        try:
            connection = socket.create_connection((host, int(port)), min(left, HANDSHAKE_S))
        except TimeoutError:
            raise WireFailure(MoveEnd.LATE, f"{address} does not answer") from None
        except (OSError, ValueError) as error:
            raise WireFailure(MoveEnd.GONE, f"{address}: {error}") from None
        try:
            prepare(connection)
            introduce(connection, self._secret, until)
        except TimeoutError:
            connection.close()
            raise WireFailure(MoveEnd.LATE, f"{address} does not answer") from None
        except (Broken, OSError) as error:
            connection.close()
            raise WireFailure(MoveEnd.GONE, f"{address}: {error}") from None
        return connection


def _stands(idle: socket.socket) -> bool:
    """Whether the other side has neither ended it nor said what nobody asked for."""
    with contextlib.suppress(OSError):
        try:
            idle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
    return False
