"""Records to bytes and back: MessagePack by msgspec, one decoder for each closed union."""

from typing import Any

import msgspec
from msgspec import Struct, msgpack

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact
from tercet.messages.events import Event
from tercet.messages.wire import Hello, Message


class Facts(Struct, frozen=True, kw_only=True, tag=True):
    """Facts of a machine in another process, on their way to the front that shows metrics."""

    facts: tuple[Fact, ...]


class StillHere(Struct, frozen=True, tag=True):
    """Said each second over connections between hosts, so that silence means something."""


class Join(Struct, frozen=True, kw_only=True, tag=True):
    """A host asks the cluster what it is to be a part of."""

    host: str


class Welcome(Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `Join`."""

    cluster: str
    """Another one whenever the cluster was started anew: its hosts begin anew too."""
    config: bytes
    """A `TreeConfig`, without what is the first host's own."""
    endpoints: dict[Address, str]
    """Where the first host's machines are reached."""


Parcel = Message | Facts | StillHere | Join | Welcome
"""What a frame holds once both hellos were good."""


class Malformed(ValueError):  # noqa: N818  the name says what happened
    """Bytes that hold no record of the expected kind."""


UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What decoders raise; the latter for what is nested a thousand deep, known fields or not."""

_encoder = msgpack.Encoder()
_parcels: msgpack.Decoder[Any] = msgpack.Decoder(Parcel)
_hellos: msgpack.Decoder[Hello] = msgpack.Decoder(Hello)
_events: msgpack.Decoder[Any] = msgpack.Decoder(tuple[int, Event])


def encode(record: Struct) -> bytes:
    """Give the bytes of one record."""
    return _encoder.encode(record)


def encode_event(now: int, event: Event) -> bytes:
    """Give the bytes of one entry of a recording."""
    return _encoder.encode((now, event))


def encode_effects(effects: list[Effect]) -> bytes:
    """Give bytes that are equal exactly if the effects are."""
    return _encoder.encode(effects)


def decode_parcel(payload: bytes) -> Parcel:
    """Read one frame between machines; raise `Malformed`."""
    try:
        parcel: Parcel = _parcels.decode(payload)
    except UNREADABLE as error:
        raise Malformed(str(error)) from error
    return parcel


def decode_hello(payload: bytes) -> Hello:
    """Read the first frame of a peer; raise `Malformed`."""
    try:
        return _hellos.decode(payload)
    except UNREADABLE as error:
        raise Malformed(str(error)) from error


def decode_event(payload: bytes) -> tuple[int, Event]:
    """Read one entry of a recording; raise `Malformed`."""
    try:
        now, event = _events.decode(payload)
    except UNREADABLE as error:
        raise Malformed(str(error)) from error
    return now, event
