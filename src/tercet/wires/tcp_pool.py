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


class Connections:
    """Used by many threads; a connection belongs to who took it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._changed = threading.Condition(threading.Lock())
        self._idle: dict[str, list[socket.socket]] = {}
        self._busy: dict[str, dict[int, socket.socket]] = {}
        self._dialing: dict[str, int] = {}
        self.closed = False

    def take(self, address: str, until: int) -> tuple[socket.socket, bool]:
        """A connection, and whether it was used before."""
        with self._changed:
            while not self.closed:
                if idle := self._idle.get(address):
                    connection = idle.pop()
                    self._busy.setdefault(address, {})[connection.fileno()] = connection
                    return connection, True
                busy = len(self._busy.get(address, ())) + self._dialing.get(address, 0)
                if busy < _MOST:
                    break
                if time.monotonic_ns() > until:
                    raise WireFailure(MoveEnd.LATE, f"all connections with {address} are in use")
                self._changed.wait(_LOOK_S)
            if self.closed:
                raise WireFailure(MoveEnd.GONE, "the wire is closed")
            self._dialing[address] = self._dialing.get(address, 0) + 1
        dialed: socket.socket | None = None
        try:
            dialed = self._dial(address, until)
        finally:
            with self._changed:
                self._dialing[address] -= 1
                if dialed is not None:
                    self._busy.setdefault(address, {})[dialed.fileno()] = dialed
                self._changed.notify()
        return dialed, False

    def give(self, address: str, connection: socket.socket) -> None:
        """It is as it was after the proof: the next one may use it."""
        with self._changed:
            del self._busy[address][connection.fileno()]
            if self.closed:
                connection.close()
            else:
                self._idle.setdefault(address, []).append(connection)
            self._changed.notify()

    def drop(self, address: str, connection: socket.socket) -> None:
        """It is of no use any more, and those that idle may be as old: none of them is kept."""
        with self._changed:
            del self._busy[address][connection.fileno()]
            for one in (connection, *self._idle.pop(address, ())):
                one.close()
            self._changed.notify()

    def close(self) -> None:
        """Idle ones end; those in use are cut."""
        with self._changed:
            self.closed = True
            for idle in self._idle.values():
                for one in idle:
                    one.close()
            self._idle.clear()
            for busy in self._busy.values():
                for one in busy.values():
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

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
