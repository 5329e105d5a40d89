r"""A machine's life as a file: how it was made, every `(now, event)`, a digest of every answer.

    "TERCET1\n"
    | length | construction (MessagePack)          |
    | length | (now, event)          | 16-byte digest of the effects |
    | length | (now, event)          | digest | ...

Results of the engine are in the events, so nothing is ever recomputed. A process that was killed
leaves a file whose last entry may be cut off: readers stop there. A machine that broke down leaves
one whose last event has no digest.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.messages.effects import Effect
from tercet.messages.events import Event
from tercet.runtime.codec import decode_event, encode_effects, encode_event

MAGIC = b"TERCET1\n"
DIGEST_BYTES = 16
SUFFIX = ".recording"
_PREFIX = 4
_log = logging.getLogger("tercet.runtime")


def digest(effects: list[Effect]) -> bytes:
    """Give 16 bytes that differ if the effects do."""
    return hashlib.blake2b(encode_effects(effects), digest_size=DIGEST_BYTES).digest()


def open_folder(folder: Path) -> None:
    """Make the folder of a run's recordings; `Invalid` if it holds anything, since files of two
    runs have the same names.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.listdir(folder)  # noqa: PTH208  names only
    except OSError as error:
        raise Invalid(
            f"Nothing can be recorded in {folder}: {error.strerror}.", parameter="record"
        ) from error
    if held:
        raise Invalid(
            f"The folder for recordings {folder} holds {min(held)} already; name an empty or a new "
            "one, so that two runs do not mix.",
            parameter="record",
        )


class Recorder:
    """Writes one machine's recording, every entry at once: what a process that hangs or is killed
    took last is what matters. A disk that cannot take more ends the recording, not the machine.
    """

    def __init__(self, path: Path, construction: bytes) -> None:
        self._path = path
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._give_up(error)
        self._write(MAGIC + _framed(construction))

    def event(self, now: int, event: Event) -> None:
        """Write the event, before the machine takes it."""
        self._write(_framed(encode_event(now, event)))

    def effects(self, effects: list[Effect]) -> None:
        """Write the digest of what the machine answered."""
        self._write(digest(effects))

    def close(self) -> None:
        """Write no more; harmless twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        try:
            while data and self._file is not None:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _log.error("the recording %s ends here: %s", self._path.name, error.strerror)
        self.close()


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(_PREFIX, "little") + payload


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
        """Give (now, event, digest of the effects), up to the last whole entry; the digest is
        empty where the machine gave no effects, because it broke down.
        """
        at, data = self._start, self._data
        while at + _PREFIX <= len(data):
            size = int.from_bytes(data[at : at + _PREFIX], "little")
            end = at + _PREFIX + size
            if end != len(data) and end + DIGEST_BYTES > len(data):
                return
            now, event = decode_event(data[at + _PREFIX : end])
            yield now, event, data[end : end + DIGEST_BYTES]
            at = end + DIGEST_BYTES
