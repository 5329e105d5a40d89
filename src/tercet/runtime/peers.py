"""All connections of one machine: at most one open connection for each peer address.

A machine listens on sockets of its own and dials others' endpoints, on its host and on others,
with the same hellos. Sending to a peer that is not
connected drops the message (the contract of `Send`): machines recover by `PeerGone` and repetition.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.errors import Invalid
from tercet.base.ids import Address
from tercet.messages.events import PeerGone, PeerJoined, Received
from tercet.messages.wire import Message
from tercet.runtime.codec import Facts, Join, Parcel, StillHere, Welcome
from tercet.runtime.connection import Connection
from tercet.runtime.endpoints import connect, is_remote
from tercet.runtime.frames import FrameLimits
from tercet.runtime.identity import Identity

PeerEvent = Received | PeerJoined | PeerGone


@dataclass(frozen=True)
class PeersConfig:
    """How a machine keeps its connections."""

    redial_s_min: float = 0.02
    redial_s_max: float = 0.5
    """A dialer waits between these, doubling, until the peer answers again."""
    connections_max: int = 1024
    """Accepted connections at one time; more are closed at once (I6)."""
    strangers_max: int = 64
    """Those from other hosts that have not proved themselves, beside the former: for one more the
    oldest ends."""
    limits: FrameLimits = field(default_factory=FrameLimits)


class Peers:
    """The connections of one machine; events reach `deliver` in the order they happened."""

    def __init__(
        self,
        identity: Identity,
        deliver: Callable[[PeerEvent], None],
        *,
        config: PeersConfig,
        facts: Callable[[Address, Facts], None] | None = None,
        aside: Callable[[Address, Join | Welcome], Welcome | None] | None = None,
    ) -> None:
        """`aside` hears what is said about the cluster itself, and may answer."""
        self._aside = aside
        self._identity = identity
        self._deliver = deliver
        self._config = config
        self._facts = facts
        self._open: dict[Address, Connection] = {}
        self._accepted: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        self._servers: list[asyncio.Server] = []
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Accept peers on an inherited listening socket until `close`."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        if listener.family == socket.AF_UNIX:
            server = await loop.create_unix_server(self._accept, sock=listener, backlog=512)
        else:
            server = await loop.create_server(self._accept_remote, sock=listener, backlog=512)
        self._servers.append(server)

    def dial(self, endpoint: str) -> None:
        """Keep a connection with whoever listens there, until `hang_up`."""
        if endpoint not in self._dialers:
            self._dialers[endpoint] = asyncio.get_running_loop().create_task(self._keep(endpoint))

    def hang_up(self, endpoint: str) -> None:
        """Dial it no more; a connection that stands stays until either end is gone."""
        task = self._dialers.pop(endpoint, None)
        if task is not None:
            task.cancel()

    def send(self, to: Address, message: Message) -> None:
        """Hand a message to a peer, or drop it if the peer is not connected."""
        connection = self._open.get(to)
        if connection is not None:
            connection.send(message)

    def say(self, to: Address, parcel: Join) -> None:
        """Say something about the cluster itself to a peer that is connected."""
        connection = self._open.get(to)
        if connection is not None:
            connection.send(parcel)

    def send_facts(self, facts: Facts, *, to: str) -> None:
        """Give facts to every connected peer whose address begins so."""
        for address, connection in self._open.items():
            if address.startswith(to):
                connection.send(facts)

    def connected(self, peer: Address) -> bool:
        return peer in self._open

    async def close(self) -> None:
        """End every connection, after what was queued has left."""
        self._closed = True
        for task in self._dialers.values():
            task.cancel()
        for connection in list(self._open.values()):
            connection.close()
        for server in self._servers:
            server.close()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)

    def opened(self, connection: Connection) -> bool:
        peer = connection.peer
        if peer is None or self._closed:
            return False
        former = self._open.get(peer.address)
        if former is not None and former.peer is not None:
            if former.peer.epoch > peer.epoch:
                return False
            self._drop(former)
            former.abort()
        self._open[peer.address] = connection
        self._deliver(PeerJoined(peer=peer.address, epoch=peer.epoch))
        return True

    def received(self, connection: Connection, parcel: Parcel) -> None:
        peer = connection.peer
        if peer is None or self._open.get(peer.address) is not connection:
            return
        if isinstance(parcel, Facts):
            if self._facts is not None:
                self._facts(peer.address, parcel)
            return
        if isinstance(parcel, Join | Welcome):
            answer = None if self._aside is None else self._aside(peer.address, parcel)
            if answer is not None:
                connection.send(answer)
            return
        if isinstance(parcel, StillHere):
            return
        self._deliver(Received(sender=peer.address, epoch=peer.epoch, message=parcel))

    def closed(self, connection: Connection) -> None:
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        peer = connection.peer
        if peer is not None and self._open.get(peer.address) is connection:
            del self._open[peer.address]
            if not self._closed:
                self._deliver(PeerGone(peer=peer.address, epoch=peer.epoch))

    def _accept_remote(self) -> asyncio.BaseProtocol:
        return self._accept(remote=True)

    def _accept(self, *, remote: bool = False) -> asyncio.BaseProtocol:
        connection = Connection(
            self._identity, "listen", _Accepted(self), self._config.limits, remote=remote
        )
        if remote:
            if len(self._strangers) >= self._config.strangers_max:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.abort()
            self._strangers[connection] = None
        elif not self.admit(connection):
            connection.abort()
        return connection.frames

    def admit(self, connection: Connection) -> bool:
        """Give an accepted connection one of the places, unless all are taken."""
        self._strangers.pop(connection, None)
        if connection not in self._accepted and len(self._accepted) < self._config.connections_max:
            self._accepted[connection] = None
        return connection in self._accepted

    def ended(self, connection: Connection) -> None:
        """An accepted connection is over, whether it had a place or not."""
        self._strangers.pop(connection, None)
        self._accepted.pop(connection, None)

    async def _keep(self, endpoint: str) -> None:
        loop = asyncio.get_running_loop()
        delay = self._config.redial_s_min
        remote = is_remote(endpoint)
        while True:
            dialed = _Dialed(self, loop.create_future())
            connection = Connection(
                self._identity, "dial", dialed, self._config.limits, remote=remote
            )
            try:
                await connect(endpoint, lambda c=connection: c.frames)  # type: ignore[misc]
            except (OSError, ValueError, Invalid):
                pass  # nobody there, for now or (a name that makes no sense) for ever
            else:
                await dialed.end
            if connection.peer is not None:
                delay = self._config.redial_s_min
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._config.redial_s_max)


@dataclass(frozen=True)
class _Accepted:
    """Tells the peers of a connection that came to us."""

    peers: Peers

    def opened(self, connection: Connection) -> bool:
        return self.peers.admit(connection) and self.peers.opened(connection)

    def received(self, connection: Connection, parcel: Parcel) -> None:
        self.peers.received(connection, parcel)

    def closed(self, connection: Connection) -> None:
        self.peers.ended(connection)
        self.peers.closed(connection)


@dataclass(frozen=True)
class _Dialed:
    """Tells the peers, and the dialer that its connection ended."""

    peers: Peers
    end: "asyncio.Future[None]"

    def opened(self, connection: Connection) -> bool:
        return self.peers.opened(connection)

    def received(self, connection: Connection, parcel: Parcel) -> None:
        self.peers.received(connection, parcel)

    def closed(self, connection: Connection) -> None:
        self.peers.closed(connection)
        if not self.end.done():
            self.end.set_result(None)
