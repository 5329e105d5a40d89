"""Hellos: who is believed, and who is not."""

import asyncio
import dataclasses
from pipes import Pipe, exchange, turn

import msgspec
import pytest

from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.messages.wire import CancelTask, ExecutorGone
from tercet.runtime.codec import Parcel, decode_hello, encode
from tercet.runtime.connection import Connection, Peer
from tercet.runtime.frames import FrameLimits
from tercet.runtime.identity import Identity, Side

FRONT = Identity(Address("front/0"), Epoch(3), b"secret")
EXECUTOR = Identity(Address("executor/1"), Epoch(9), b"secret")


class Owner:
    def __init__(self) -> None:
        self.peers: list[Peer | None] = []
        self.parcels: list[Parcel] = []
        self.num_closed = 0

    def opened(self, connection: Connection) -> bool:
        self.peers.append(connection.peer)
        return True

    def received(self, connection: Connection, parcel: Parcel) -> None:
        self.parcels.append(parcel)

    def closed(self, connection: Connection) -> None:
        self.num_closed += 1


class End:
    def __init__(self, identity: Identity, side: Side) -> None:
        self.owner = Owner()
        self.connection = Connection(identity, side, self.owner, FrameLimits())
        self.pipe = Pipe()
        self.connection.frames.connection_made(self.pipe)

    @property
    def frames(self) -> asyncio.Protocol:
        return self.connection.frames


async def meet(dialer: Identity, listener: Identity) -> tuple[End, End]:
    one, other = End(dialer, "dial"), End(listener, "listen")
    await exchange(one.frames, one.pipe, other.frames, other.pipe)
    return one, other


def test_both_sides_learn_whom_they_speak_with() -> None:
    async def scene() -> None:
        one, other = await meet(EXECUTOR, FRONT)
        assert one.owner.peers == [Peer(FRONT.address, FRONT.epoch)]
        assert other.owner.peers == [Peer(EXECUTOR.address, EXECUTOR.epoch)]
        one.connection.send(CancelTask(task=TaskId(5)))
        await exchange(one.frames, one.pipe, other.frames, other.pipe)
        assert other.owner.parcels == [CancelTask(task=TaskId(5))]

    asyncio.run(scene())


def test_another_secret_is_not_believed_and_told_nothing() -> None:
    async def scene() -> None:
        stranger = dataclasses.replace(EXECUTOR, secret=b"guess")
        one, other = await meet(stranger, FRONT)
        assert other.owner.peers == []
        assert other.pipe.aborted
        assert one.owner.peers == []

    asyncio.run(scene())


def test_a_listener_with_another_secret_is_not_believed() -> None:
    async def scene() -> None:
        one = End(EXECUTOR, "dial")
        other = End(dataclasses.replace(FRONT, secret=b"guess"), "listen")
        other.connection._identity = FRONT  # it cannot check, and pretends
        await turn()
        one.frames.data_received(b"".join(other.pipe.written))
        other.connection._identity = dataclasses.replace(FRONT, secret=b"guess")
        other.pipe.written.clear()
        await exchange(one.frames, one.pipe, other.frames, other.pipe)
        assert one.owner.peers == []

    asyncio.run(scene())


def test_a_proof_that_was_overheard_opens_nothing() -> None:
    async def scene() -> None:
        one, other = End(EXECUTOR, "dial"), End(FRONT, "listen")
        await turn()
        one.frames.data_received(b"".join(other.pipe.written))
        await turn()
        overheard = b"".join(one.pipe.written)
        again = End(FRONT, "listen")
        await turn()
        again.frames.data_received(overheard)
        assert again.owner.peers == []
        assert again.pipe.aborted

    asyncio.run(scene())


def test_a_hello_sent_back_is_no_hello() -> None:
    """A dialer that is answered with its own words does not believe them."""

    async def scene() -> None:
        one = End(EXECUTOR, "dial")
        challenge = bytes(32)
        one.frames.data_received(len(challenge).to_bytes(4, "little") + challenge)
        await turn()
        one.frames.data_received(b"".join(one.pipe.written))
        assert one.owner.peers == []
        assert one.pipe.aborted

    asyncio.run(scene())


@pytest.mark.parametrize("change", [{"protocol": 99}, {"epoch": 4}, {"sender": "cluster"}])
def test_a_changed_hello_is_not_believed(change: dict[str, object]) -> None:
    async def scene() -> None:
        one, other = End(EXECUTOR, "dial"), End(FRONT, "listen")
        await turn()
        one.frames.data_received(b"".join(other.pipe.written))
        await turn()
        hello = decode_hello(b"".join(one.pipe.written)[4:])
        changed = encode(msgspec.structs.replace(hello, **change))
        other.frames.data_received(len(changed).to_bytes(4, "little") + changed)
        assert other.owner.peers == []
        assert other.pipe.aborted

    asyncio.run(scene())


def test_nothing_that_is_longer_than_a_hello_is_kept_before_the_proof() -> None:
    async def scene() -> None:
        for side, identity in (("listen", FRONT), ("dial", EXECUTOR)):
            end = End(identity, side)
            end.frames.data_received((4097).to_bytes(4, "little"))
            assert end.pipe.aborted
        one, other = await meet(EXECUTOR, FRONT)
        long = ExecutorGone(executor=ExecutorId(1), reason="x" * 100_000)
        one.connection.send(long)
        other.connection.send(long)
        await exchange(one.frames, one.pipe, other.frames, other.pipe)
        assert one.owner.parcels == other.owner.parcels == [long]

    asyncio.run(scene())


@pytest.mark.parametrize(
    "garbage", [b"", b"GET / HTTP/1.1", b"\xc1" * 40, b"\x81\xa1z" + b"\x91" * 1100]
)
def test_garbage_ends_the_connection(garbage: bytes) -> None:
    async def scene() -> None:
        other = End(FRONT, "listen")
        await turn()
        other.frames.data_received(len(garbage).to_bytes(4, "little") + garbage)
        assert other.pipe.aborted
        one, other = await meet(EXECUTOR, FRONT)
        one.frames.data_received(len(garbage).to_bytes(4, "little") + garbage)
        assert one.pipe.aborted
        assert one.owner.parcels == []

    asyncio.run(scene())
