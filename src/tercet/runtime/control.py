"""What the supervisor and its processes tell each other, and descriptors that go along.

    supervisor --Begin, Held, Drain, Reaped, NewZygote--> front, agent, zygote
    front      --Beat, State, Drained, Failed, Wanted--> supervisor
    agent      --Beat, Hold, Release, ZygoteSilent, Failed--> supervisor
    agent      --Fork--------------------> zygote
    executor   --Born, Wants-------------> agent --Go, Lend--> executor      (its birth channel)
    agent      --Lent, Withdrawn---------> executor --Unmapped--> agent      (the same, for life)
    supervisor --Serving, Failed---------> whoever started the tree and watches it

Every channel is a pair of Unix sockets that keep message borders; its end is the peer's end. A
note that is too long for a message (a configuration with a large chat template) goes along as a
memory file: `Attached`, whose last descriptor it is.
"""

import array
import contextlib
import os
import socket
from typing import Any

from msgspec import Struct, msgpack

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.wire import Role
from tercet.runtime.config import TreeConfig

_MESSAGE_BYTES_MAX = 1 << 16
"""Every kernel's default buffers take as much in one piece."""
_BUFFER_BYTES = 1 << 18
NOTE_BYTES_MAX = 1 << 26
_DESCRIPTORS_MAX = 16
_ANCILLARY_BYTES_MAX = socket.CMSG_LEN(_DESCRIPTORS_MAX * array.array("i").itemsize)


class Begin(Struct, frozen=True, kw_only=True, tag=True):
    """A process's first message: who it is and what it needs."""

    config: TreeConfig
    address: Address
    epoch: Epoch
    supervisor: int
    """Process id: whoever has another parent ends itself."""
    secret: bytes
    names: dict[Address, str]
    """Where the machines that this process dials take connections."""
    public: dict[Address, str] = {}
    """Where other hosts reach the machines of this one."""
    descriptors: tuple[str, ...] = ()
    """What the attached descriptors are, in order."""
    next_executor: int = 0
    """For an agent: no lower executor id may be new."""
    num_held: int = 0
    """For an agent: so many `Held` follow."""


class Held(Struct, frozen=True, kw_only=True, tag=True):
    """What an agent's former self had of an executor; `parts` names the descriptors."""

    executor: ExecutorId
    pid: int
    parts: tuple[str, ...]


class Drain(Struct, frozen=True, kw_only=True, tag=True):
    deadline: int


class Reaped(Struct, frozen=True, kw_only=True, tag=True):
    """A process that the agent may care for has ended, and so."""

    pid: int
    how: str


class NewZygote(Struct, frozen=True, kw_only=True, tag=True):
    """The zygote was replaced; the attached descriptor leads to it."""


class Beat(Struct, frozen=True, kw_only=True, tag=True):
    """The event loop turns."""


class State(Struct, frozen=True, kw_only=True, tag=True):
    ready: bool


class Wanted(Struct, frozen=True, kw_only=True, tag=True):
    """So many executors of each role are wanted from now on: the front's next self starts so."""

    prefill: int
    decode: int
    colocated: int


class Drained(Struct, frozen=True, kw_only=True, tag=True):
    """Every job has ended and every answer has left."""


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """The tree cannot serve; a person is told this sentence."""

    sentence: str
    code: str = "failed"
    for_good: bool = False
    """It ends even if it has served before."""


class Hold(Struct, frozen=True, kw_only=True, tag=True):
    """Keep these descriptors of an executor until `Release`, for the agent's next self."""

    executor: ExecutorId
    pid: int
    parts: tuple[str, ...]


class Release(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId


class ZygoteSilent(Struct, frozen=True, kw_only=True, tag=True):
    """The zygote forked nothing for too long: replace it."""


class Fork(Struct, frozen=True, kw_only=True, tag=True):
    """Fork an executor; attached: its end of the birth channel, and its progress page."""

    executor: ExecutorId
    role: Role
    model: str
    epoch: Epoch
    threads: int
    asked: int
    """Machine time of the wish."""


class Born(Struct, frozen=True, kw_only=True, tag=True):
    """The executor's process exists; attached: its process descriptor."""

    pid: int


class Wants(Struct, frozen=True, kw_only=True, tag=True):
    """The executor knows its model: how large the blocks of its arena are."""

    block_bytes: int
    context_max: int


class Go(Struct, frozen=True, kw_only=True, tag=True):
    """The executor is known to the supervisor: it may live."""


class Lend(Struct, frozen=True, kw_only=True, tag=True):
    """An arena, attached, and its layout's numbers."""

    block_bytes: int
    num_blocks: int


class Lent(Struct, frozen=True, kw_only=True, tag=True):
    """Memory of this host that may be read: attached, to be mapped read-only."""

    memory: str
    size: int
    arena: bool
    """It goes into the address range; otherwise it is a segment of the pool."""


class Withdrawn(Struct, frozen=True, kw_only=True, tag=True):
    """Its owner is gone: read no more of it than what is read already, then unmap it."""

    memory: str


class Unmapped(Struct, frozen=True, kw_only=True, tag=True):
    memory: str


class Serving(Struct, frozen=True, kw_only=True, tag=True):
    """The tree answers requests here."""

    url: str


class Launch(Struct, frozen=True, kw_only=True, tag=True):
    """Start a tree for the process at the other end of this channel."""

    config: TreeConfig


class Attached(Struct, frozen=True, kw_only=True, tag=True):
    """The note itself is in the memory file that comes with this, after its own descriptors."""

    size_bytes: int


Note = (
    Begin
    | Held
    | Drain
    | Reaped
    | NewZygote
    | Beat
    | State
    | Drained
    | Wanted
    | Failed
    | Hold
    | Release
    | ZygoteSilent
    | Fork
    | Born
    | Wants
    | Go
    | Lend
    | Lent
    | Withdrawn
    | Unmapped
    | Serving
    | Launch
)
_notes: msgpack.Decoder[Any] = msgpack.Decoder(Note)
_messages: msgpack.Decoder[Any] = msgpack.Decoder(Note | Attached)
_encoder = msgpack.Encoder()


class Channel:
    """One end of a pair; not for more than one thread."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, note: Note, descriptors: tuple[int, ...] = ()) -> bool:
        """Send, with copies of the descriptors; False if the peer is gone or does not read."""
        data = _encoder.encode(note)
        if len(data) <= _MESSAGE_BYTES_MAX:
            return self._send(data, descriptors)
        must(len(data) <= NOTE_BYTES_MAX, f"a note of {len(data)} bytes")
        file = _memory_file(data)
        try:
            attached = _encoder.encode(Attached(size_bytes=len(data)))
            return self._send(attached, (*descriptors, file))
        finally:
            os.close(file)

    def _send(self, data: bytes, descriptors: tuple[int, ...]) -> bool:
        try:
            socket.send_fds(self.end, [data], list(descriptors))
        except OSError:
            return False
        return True

    def receive(self) -> tuple[Note, list[int]] | None:
        """Give the next note and its descriptors, now ours; None at the peer's end.

        `BlockingIOError` if the channel does not block and nothing is there.
        """
        try:
            data, ancillary, _, _ = self.end.recvmsg(
                _MESSAGE_BYTES_MAX, _ANCILLARY_BYTES_MAX, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return None
        if not data:
            return None
        descriptors = _descriptors_in(ancillary)
        message: Note | Attached = _messages.decode(data)
        if not isinstance(message, Attached):
            return message, descriptors
        note: Note = _notes.decode(_taken(descriptors.pop(), message.size_bytes))
        return note, descriptors

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.end.close()


def _memory_file(data: bytes) -> int:
    """Give the descriptor of a new memory file that holds the data."""
    file = os.memfd_create("tercet-note", os.MFD_CLOEXEC)
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], written)
    return file


def _taken(file: int, size: int) -> bytes:
    """Give what a memory file holds, and close it."""
    try:
        parts: list[bytes] = []
        at = 0
        while at < size and (part := os.pread(file, size - at, at)):
            parts.append(part)
            at += len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Give the descriptors that came with a note (`socket.recv_fds` would ignore its flags, and a
    process that is executed later would inherit them).
    """
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return descriptors.tolist()


def channel_pair() -> tuple[Channel, Channel]:
    """Give both ends of a new channel."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (one, other):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    return Channel(one), Channel(other)


def channel_from(descriptor: int) -> Channel:
    """Give the end that an inherited or received descriptor is."""
    return Channel(socket.socket(fileno=descriptor))
