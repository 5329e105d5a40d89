"""Peers on other hosts: the same hellos over TCP, and silence that is noticed."""

import asyncio
import socket

import pytest

from tercet.base.errors import Invalid
from tercet.base.ids import Address, Epoch, TaskId
from tercet.messages.events import PeerGone, PeerJoined, Received
from tercet.messages.wire import CancelTask
from tercet.runtime import connection
from tercet.runtime.codec import Join, Welcome
from tercet.runtime.endpoints import endpoint_of, listen, tcp
from tercet.runtime.identity import Identity
from tercet.runtime.joining_host import ask
from tercet.runtime.peers import PeerEvent, Peers, PeersConfig

HEAD, HOST = Address("cluster"), Address("agent/b")


class Party:
    def __init__(self, address: Address, secret: bytes = b"of the cluster") -> None:
        self.events: list[PeerEvent] = []
        self.welcomes: list[Welcome] = []
        self.peers = Peers(
            Identity(address, Epoch(1), secret),
            self.events.append,
            config=PeersConfig(),
            aside=self.aside,
        )

    def aside(self, peer: Address, parcel: Join | Welcome) -> Welcome | None:
        if isinstance(parcel, Join):
            return Welcome(cluster="", config=parcel.host.encode(), endpoints={HEAD: str(peer)})
        self.welcomes.append(parcel)
        return None

    async def until(self, event: PeerEvent) -> None:
        while event not in self.events:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Link:
    """A hop between dialer and listener that can be stopped without closing anything."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()
        self.open.set()
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> str:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return tcp("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _joined(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, on = await asyncio.open_connection("127.0.0.1", self._port)
        loop = asyncio.get_running_loop()
        self._tasks += [
            loop.create_task(self._carry(near, on)),
            loop.create_task(self._carry(far, back)),
        ]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self.open.wait()
                writer.write(data)
        finally:
            writer.close()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.05)


def run(scene: "asyncio.Future[None]") -> None:
    asyncio.run(asyncio.wait_for(scene, 30))


def listener() -> tuple[socket.socket, str]:
    found = listen(tcp("127.0.0.1", 0))
    return found, endpoint_of(found, "127.0.0.1")


def test_hosts_say_hello_as_processes_do_and_ask_what_they_are_to_be() -> None:
    async def scene() -> None:
        head, host = Party(HEAD), Party(HOST)
        door, endpoint = listener()
        await head.peers.serve(door)
        host.peers.dial(endpoint)
        await host.until(PeerJoined(peer=HEAD, epoch=Epoch(1)))
        host.peers.send(HEAD, CancelTask(task=TaskId(7)))
        message = CancelTask(task=TaskId(7))
        await head.until(Received(sender=HOST, epoch=Epoch(1), message=message))
        host.peers.say(HEAD, Join(host="b"))
        while not host.welcomes:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert host.welcomes[0].config == b"b"
        await host.peers.close()
        await head.until(PeerGone(peer=HOST, epoch=Epoch(1)))
        await head.peers.close()

    run(scene())  # type: ignore[arg-type]


def test_a_cluster_whose_configuration_makes_no_sense_is_told_in_a_sentence() -> None:
    async def scene() -> None:
        head = Party(HEAD)
        door, endpoint = listener()
        await head.peers.serve(door)
        cluster = endpoint.removeprefix("tcp:")
        with pytest.raises(Invalid, match="another version"):
            await asyncio.to_thread(ask, cluster, host="b", secret=b"of the cluster")
        await head.peers.close()

    run(scene())  # type: ignore[arg-type]


def test_who_does_not_know_the_secret_is_nobody() -> None:
    async def scene() -> None:
        head, host = Party(HEAD), Party(HOST, secret=b"guessed")
        door, endpoint = listener()
        await head.peers.serve(door)
        host.peers.dial(endpoint)
        await asyncio.sleep(0.3)
        assert (head.events, host.events) == ([], [])
        await host.peers.close()
        await head.peers.close()

    run(scene())  # type: ignore[arg-type]


def test_strangers_fill_no_place_of_members() -> None:
    async def scene() -> None:
        head, host = Party(HEAD), Party(HOST)
        head.peers = Peers(
            Identity(HEAD, Epoch(1), b"of the cluster"),
            head.events.append,
            config=PeersConfig(connections_max=2, strangers_max=3),
        )
        door, endpoint = listener()
        await head.peers.serve(door)
        port = door.getsockname()[1]
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in strangers:  # each is greeted, the oldest are cut off
            assert len(await reader.readexactly(36)) == 36
        assert [await reader.read(1) for reader, _ in strangers[:2]] == [b"", b""]
        host.peers.dial(endpoint)
        await host.until(PeerJoined(peer=HEAD, epoch=Epoch(1)))
        again = Party(Address("agent/c"))
        again.peers.dial(endpoint)
        await again.until(PeerJoined(peer=HEAD, epoch=Epoch(1)))
        third = Party(Address("agent/d"))
        third.peers.dial(endpoint)
        await asyncio.sleep(0.2)
        assert PeerJoined(peer=Address("agent/d"), epoch=Epoch(1)) not in head.events
        await again.peers.close()  # its place is free
        await third.until(PeerJoined(peer=HEAD, epoch=Epoch(1)))
        for _, writer in strangers:
            writer.close()
        for party in (host, third, head):
            await party.peers.close()

    run(scene())  # type: ignore[arg-type]


def test_an_endpoint_that_makes_no_sense_is_dialed_in_vain() -> None:
    async def scene() -> None:
        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        host = Party(HOST)
        for endpoint in ("tcp:nowhere", "tcp:a..b:1", "tcp:\0:1", "unix:" + "x" * 200, ""):
            host.peers.dial(endpoint)
        await asyncio.sleep(0.2)
        for endpoint in list(host.peers._dialers):
            assert not host.peers._dialers[endpoint].done()
            host.peers.hang_up(endpoint)
        await host.peers.close()
        assert told == []

    run(scene())  # type: ignore[arg-type]


def test_a_silent_partition_is_noticed_at_both_ends_and_heals(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Both ends live and no end is told: only beats that stay away say it."""
    monkeypatch.setattr(connection, "BEAT_S", 0.05)

    async def scene() -> None:
        head, host = Party(HEAD), Party(HOST)
        door, _ = listener()
        await head.peers.serve(door)
        link = Link(door.getsockname()[1])
        host.peers.dial(await link.serve())
        await host.until(PeerJoined(peer=HEAD, epoch=Epoch(1)))
        await asyncio.sleep(1.0)
        assert not any(isinstance(event, PeerGone) for event in (*head.events, *host.events))
        link.open.clear()
        await head.until(PeerGone(peer=HOST, epoch=Epoch(1)))
        await host.until(PeerGone(peer=HEAD, epoch=Epoch(1)))
        head.events.clear()
        link.open.set()
        await head.until(PeerJoined(peer=HOST, epoch=Epoch(1)))
        await host.peers.close()
        await head.peers.close()
        await link.close()

    run(scene())  # type: ignore[arg-type]
