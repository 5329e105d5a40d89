"""One connection with one peer: the hellos first, then messages."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from tercet.base.ids import Address, Epoch
from tercet.runtime.codec import (
    Malformed,
    Parcel,
    StillHere,
    decode_hello,
    decode_parcel,
    encode,
)
from tercet.runtime.frames import FrameLimits, Frames
from tercet.runtime.identity import NONCE_BYTES, Identity, Side, nonce

_STILL_HERE = encode(StillHere())
HELLO_TIMEOUT_S = 5.0
"""A connection whose hello is not complete by then ends (the peer may be stopped)."""
HELLO_BYTES_MAX = 4096
"""Nobody may have more kept here before the proof."""
BEAT_S = 1.0
SILENT_LOOKS_MAX = 5
"""A host that sends nothing for so many beats is gone; it may be cut off rather than dead."""


class ConnectionOwner(Protocol):
    """Who is told; all calls come from the loop."""

    def opened(self, connection: "Connection") -> bool:
        """Take a peer that proved itself; False refuses it and the connection ends."""
        ...

    def received(self, connection: "Connection", parcel: Parcel) -> None: ...

    def closed(self, connection: "Connection") -> None:
        """The connection is over; called once, also when it never opened."""
        ...


@dataclass(frozen=True)
class Peer:
    address: Address
    epoch: Epoch


class Connection:
    """Both directions of one stream between two machines; `peer` is known once it is open."""

    def __init__(
        self,
        identity: Identity,
        side: Side,
        owner: ConnectionOwner,
        limits: FrameLimits,
        *,
        remote: bool = False,
    ) -> None:
        """`remote`: the peer is on another host, whose end no kernel tells of."""
        self.peer: Peer | None = None
        self._remote = remote
        self._silent_looks = 0
        self._bytes_seen = 0
        self.frames = Frames(limits)
        self.frames.frame_bytes_max = HELLO_BYTES_MAX
        self._frame_bytes_max = limits.frame_bytes_max
        self._identity = identity
        self._side: Side = side
        self._owner = owner
        self._challenge = b""
        self._nonce = b""
        self._timer: asyncio.TimerHandle | None = None
        self.frames.on_open = self._begin
        self.frames.on_frame = self._shake_hands
        self.frames.on_end = self._end

    def send(self, parcel: Parcel) -> None:
        self.frames.send(encode(parcel))

    def close(self) -> None:
        self.frames.close()

    def abort(self) -> None:
        self.frames.abort()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HELLO_TIMEOUT_S, self.frames.abort)
        if self._side == "listen":
            self._challenge = nonce()
            self.frames.send(self._challenge)

    def _shake_hands(self, payload: bytes) -> None:
        if self._side == "dial" and not self._challenge:
            self._answer(payload)
            return
        other: Side = "listen" if self._side == "dial" else "dial"
        try:
            hello = decode_hello(payload)
        except Malformed:
            self.abort()
            return
        if self._side == "listen":
            self._nonce = hello.nonce
        good = self._identity.believes(
            hello, other, challenge=self._challenge, dialer_nonce=self._nonce
        )
        if not good or len(self._nonce) != NONCE_BYTES:
            self.abort()
            return
        if self._side == "listen":
            self._say_hello()
        self._open(Peer(hello.sender, hello.epoch))

    def _answer(self, challenge: bytes) -> None:
        if len(challenge) != NONCE_BYTES:
            self.abort()
            return
        self._challenge = challenge
        self._nonce = nonce()
        self._say_hello()

    def _say_hello(self) -> None:
        hello = self._identity.hello(
            self._side, challenge=self._challenge, dialer_nonce=self._nonce
        )
        self.frames.send(encode(hello))

    def _open(self, peer: Peer) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.peer = peer
        self.frames.frame_bytes_max = self._frame_bytes_max
        self.frames.on_frame = self._take
        if not self._owner.opened(self):
            self.abort()
        elif self._remote:
            self._beat()

    def _beat(self) -> None:
        """Say that we are here, and see whether the peer is; our own sleep is one look."""
        if self.frames.bytes_in != self._bytes_seen:
            self._bytes_seen = self.frames.bytes_in
            self._silent_looks = 0
        self._silent_looks += 1
        if self._silent_looks > SILENT_LOOKS_MAX:
            self.abort()
            return
        self.frames.send(_STILL_HERE)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _take(self, payload: bytes) -> None:
        try:
            parcel = decode_parcel(payload)
        except Malformed:
            self.abort()
            return
        if not isinstance(parcel, StillHere):
            self._owner.received(self, parcel)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.closed(self)
