"""What happened, twice: a running digest of everything, and the latest lines for a story."""

import hashlib
from collections import deque

import msgspec

from tercet.base.ids import Address
from tercet.messages.effects import Effect
from tercet.messages.events import Event

LINES_KEPT = 200_000
MENTION_CHARS = 600
SIZE_GUESSED = 500
"""Bytes of a message that nobody encodes."""


class Journal:
    """Every event and effect of a run, in order.

    The digest covers their bytes, so two runs that agree on it agree on everything. Lines are
    kept encoded and made readable only when a story is told.
    """

    def __init__(self, *, silent: bool = False) -> None:
        """`silent`: only count; for large runs of machines that are known to be good."""
        self._silent = silent
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        self._lines: deque[tuple[int, Address, bytes]] = deque(maxlen=LINES_KEPT)
        self.events = 0

    def event(self, now: int, address: Address, event: Event) -> None:
        self.events += 1
        if not self._silent:
            self._add(now, address, self._encoder.encode(event))

    def effect(self, now: int, address: Address, effect: Effect) -> int:
        """Note an effect; its encoded size in bytes."""
        if self._silent:
            return SIZE_GUESSED
        data = self._encoder.encode(effect)
        self._add(now, address, data)
        return len(data)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def story(self, *needles: int) -> str:
        """The lines that mention any of the ids, told in order (the last of them, if many)."""
        wanted = [self._encoder.encode(needle) for needle in needles]
        told = [
            f"{now / 1e9:12.6f}  {address:<12} {_show(data)}"
            for now, address, data in self._lines
            if any(needle in data for needle in wanted)
        ]
        return "\n".join(told[-200:])

    def _add(self, now: int, address: Address, data: bytes) -> None:
        self._hash.update(b"%d %s %d " % (now, address.encode(), len(data)))
        self._hash.update(data)
        self._lines.append((now, address, data))


def _show(data: bytes) -> str:
    text = str(msgspec.msgpack.decode(data))
    return text if len(text) <= MENTION_CHARS else text[:MENTION_CHARS] + " ..."
