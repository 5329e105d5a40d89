"""Peers over real sockets: who is connected to whom, through deaths and returns."""

import asyncio
import secrets
import socket
from collections.abc import Coroutine

import pytest
import uvloop

from tercet.base.ids import Address, Epoch, TaskId
from tercet.messages.events import PeerGone, PeerJoined, Received
from tercet.messages.wire import CancelTask
from tercet.runtime.endpoints import listen
from tercet.runtime.frames import FrameLimits
from tercet.runtime.identity import Identity
from tercet.runtime.peers import PeerEvent, Peers, PeersConfig

FRONT, EXECUTOR = Address("front/0"), Address("executor/1")
SECRET = b"of the cluster"


def run(scene: Coroutine[None, None, None]) -> None:
    uvloop.run(asyncio.wait_for(scene, 30))


class Party:
    def __init__(self, address: Address, epoch: int, config: PeersConfig | None = None) -> None:
        self.events: list[PeerEvent] = []
        self.peers = Peers(
            Identity(address, Epoch(epoch), SECRET),
            self.events.append,
            config=config or PeersConfig(),
        )

    async def until(self, event: PeerEvent) -> None:
        while event not in self.events:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def name() -> str:
    return f"tercet-test-{secrets.token_hex(8)}"


def joined(address: Address, epoch: int) -> PeerJoined:
    return PeerJoined(peer=address, epoch=Epoch(epoch))


def test_messages_arrive_in_order(name: str) -> None:
    async def scene() -> None:
        front, executor = Party(FRONT, 1), Party(EXECUTOR, 2)
        await front.peers.serve(listen(name))
        executor.peers.dial(name)
        await executor.until(joined(FRONT, 1))
        for number in range(5000):
            executor.peers.send(FRONT, CancelTask(task=TaskId(number)))
        last = Received(sender=EXECUTOR, epoch=Epoch(2), message=CancelTask(task=TaskId(4999)))
        await front.until(last)
        assert front.events[0] == joined(EXECUTOR, 2)
        messages = [event.message for event in front.events[1:] if isinstance(event, Received)]
        assert messages == [CancelTask(task=TaskId(number)) for number in range(5000)]
        await executor.peers.close()
        await front.until(PeerGone(peer=EXECUTOR, epoch=Epoch(2)))
        await front.peers.close()

    run(scene())


def test_a_dialer_comes_back_to_a_listener_that_was_replaced(name: str) -> None:
    """The supervisor keeps the listening socket: the next front goes on with it."""

    async def scene() -> None:
        kept = listen(name)
        executor = Party(EXECUTOR, 2)
        executor.peers.dial(name)
        for epoch in (1, 5):
            front = Party(FRONT, epoch)
            await front.peers.serve(socket.socket(fileno=socket.dup(kept.fileno())))
            await executor.until(joined(FRONT, epoch))
            await front.until(joined(EXECUTOR, 2))
            await front.peers.close()
            await executor.until(PeerGone(peer=FRONT, epoch=Epoch(epoch)))
        await executor.peers.close()
        kept.close()

    run(scene())


def test_a_former_self_gives_way_and_does_not_come_back(name: str) -> None:
    async def scene() -> None:
        front = Party(FRONT, 1)
        await front.peers.serve(listen(name))
        old, new = Party(EXECUTOR, 2), Party(EXECUTOR, 3)
        old.peers.dial(name)
        await front.until(joined(EXECUTOR, 2))
        new.peers.dial(name)
        await front.until(joined(EXECUTOR, 3))
        await asyncio.sleep(0.2)  # the former self dials again and again
        assert front.events == [
            joined(EXECUTOR, 2),
            PeerGone(peer=EXECUTOR, epoch=Epoch(2)),
            joined(EXECUTOR, 3),
        ]
        for party in (old, new, front):
            await party.peers.close()

    run(scene())


def test_a_peer_that_stops_reading_is_disconnected(name: str) -> None:
    async def scene() -> None:
        config = PeersConfig(limits=FrameLimits(unsent_bytes_max=1 << 20))
        front, executor = Party(FRONT, 1, config), Party(EXECUTOR, 2)
        await front.peers.serve(listen(name))
        executor.peers.dial(name)
        await front.until(joined(EXECUTOR, 2))
        # Nothing is read while the loop does not turn.
        for number in range(200_000):
            front.peers.send(EXECUTOR, CancelTask(task=TaskId(number)))
        await front.until(PeerGone(peer=EXECUTOR, epoch=Epoch(2)))
        await executor.until(PeerGone(peer=FRONT, epoch=Epoch(1)))
        for party in (executor, front):
            await party.peers.close()

    run(scene())


def test_a_stranger_is_never_heard(name: str) -> None:
    async def scene() -> None:
        front = Party(FRONT, 1)
        await front.peers.serve(listen(name))
        stranger = socket.socket(socket.AF_UNIX)
        stranger.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stranger, "\0" + name)
        assert len(await loop.sock_recv(stranger, 100)) == 36
        await loop.sock_sendall(stranger, b"\x05\x00\x00\x00hello")
        assert await loop.sock_recv(stranger, 100) == b""
        stranger.close()
        assert front.events == []
        await front.peers.close()

    run(scene())
