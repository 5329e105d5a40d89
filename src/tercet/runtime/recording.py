r"""A machine's life as a file: how it was made, every `(now, event)`, a digest of every answer.

    "TERCET1\n"
    | length | construction (MessagePack)          |
    | length | (now, event)          | 16-byte digest of the effects |
    | length | (now, event)          | digest | ...

Results of the engine are in the events, so nothing is ever recomputed. A process that was killed
leaves a file whose last entry may be cut off: readers stop there.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.messages.effects import Effect
from tercet.messages.events import Event
from tercet.runtime.codec import decode_event, encode_effects, encode_event

MAGIC = b"TERCET1\n"
DIGEST_BYTES = 16
_PREFIX = 4


def digest(effects: list[Effect]) -> bytes:
    """Give 16 bytes that differ if the effects do."""
    return hashlib.blake2b(encode_effects(effects), digest_size=DIGEST_BYTES).digest()


class Recorder:
    """Writes one machine's recording; the driver flushes it at idle and closes it."""

    def __init__(self, path: Path, construction: bytes) -> None:
        self._file = path.open("wb")
        self._file.write(MAGIC)
        self._write(construction)

    def event(self, now: int, event: Event) -> None:
        self._write(encode_event(now, event))

    def effects(self, effects: list[Effect]) -> None:
        self._file.write(digest(effects))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, payload: bytes) -> None:
        self._file.write(len(payload).to_bytes(_PREFIX, "little"))
        self._file.write(payload)


class Recording:
    """A recording that was read: the machine's construction and its entries."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        if not data.startswith(MAGIC):
            raise Invalid(f"{path} is not a recording of tercet", parameter=str(path))
        self._data = data
        self._start = len(MAGIC)
        size = int.from_bytes(data[self._start : self._start + _PREFIX], "little")
        self._start += _PREFIX
        self.construction = data[self._start : self._start + size]
        self._start += size

    def entries(self) -> Iterator[tuple[int, Event, bytes]]:
        """Give (now, event, digest of the effects), up to the last whole entry."""
        at, data = self._start, self._data
        while at + _PREFIX <= len(data):
            size = int.from_bytes(data[at : at + _PREFIX], "little")
            end = at + _PREFIX + size
            if end + DIGEST_BYTES > len(data):
                return
            now, event = decode_event(data[at + _PREFIX : end])
            yield now, event, data[end : end + DIGEST_BYTES]
            at = end + DIGEST_BYTES
