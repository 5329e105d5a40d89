"""The memories that are mapped into this process, by name, with a count of who uses each.

A memory that is taken away while it is read stays mapped until its last reader has left: `remove`
takes what has to be done then.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tercet.base.errors import must
from tercet.messages.events import MoveEnd
from tercet.wires.contract import Region, WireFailure


def _nothing() -> None:
    """Nobody waits for the end of this region."""


@dataclass(slots=True)
class _Entry:
    region: Region
    users: int = 0
    leaving: Callable[[], None] | None = None


class Regions:
    """May be changed and used by any thread at any time."""

    def __init__(self, regions: tuple[Region, ...] = ()) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        for region in regions:
            self.add(region)

    def add(self, region: Region) -> None:
        """It can be read from now on (and written, if it is writable)."""
        with self._lock:
            must(region.memory not in self._entries, f"memory {region.memory} is added twice")
            self._entries[region.memory] = _Entry(region)

    def remove(self, memory: str, then: Callable[[], None] = _nothing) -> None:
        """No new use begins. `then` (unmap it) is called once when nobody uses it any more, at
        once or by the thread of the last user; the name is free at once.
        """
        with self._lock:
            entry = self._entries.pop(memory, None)
            must(entry is not None, f"memory {memory} is removed, and never was there")
            if entry is not None and entry.users:
                entry.leaving = then
                return
        then()

    def __contains__(self, memory: object) -> bool:
        with self._lock:
            return memory in self._entries

    def stands(self, region: Region) -> bool:
        """Whether it is still there for new users."""
        with self._lock:
            entry = self._entries.get(region.memory)
            return entry is not None and entry.region is region

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._entries)

    def hold(self, memory: str) -> AbstractContextManager[Region]:
        """The region, mapped as long as the block lasts; GONE where there is none."""
        return _Held(self._lock, self._entries, memory)


class _Held:
    """One use of a region. No generator: a move of a few KiB would notice."""

    __slots__ = ("_entries", "_entry", "_lock", "_memory")

    def __init__(self, lock: threading.Lock, entries: dict[str, _Entry], memory: str) -> None:
        self._lock = lock
        self._entries = entries
        self._memory = memory

    def __enter__(self) -> Region:
        with self._lock:
            entry = self._entries.get(self._memory)
            if entry is None:
                raise WireFailure(MoveEnd.GONE, f"no memory {self._memory} here")
            entry.users += 1
        self._entry = entry
        return entry.region

    def __exit__(self, *_: object) -> None:
        entry = self._entry
        with self._lock:
            entry.users -= 1
            then = entry.leaving if entry.users == 0 else None
        if then is not None:
            then()
