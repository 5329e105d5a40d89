"""Which memories of this host which executors may read: the agent's side of lending.

ready      every executor of the same layout gets every other one's arena, read-only
dead       its arena is *sealed*: withdrawn from readers, kept while one has it mapped
too many   sealed ones at a time: their blocks begin other lives, so that readers find them stale
           and let go
"""

import mmap
import os
from dataclasses import dataclass, field

import numpy as np

from tercet.base.ids import ExecutorId
from tercet.engine.memory import ArenaLayout, life_bytes
from tercet.observe.log import Log
from tercet.runtime.control import Lent, Withdrawn
from tercet.runtime.residents import Resident

OTHER_LIFE = np.uint32(1 << 31)


@dataclass(slots=True)
class _Arena:
    memory: str
    descriptor: int
    layout: ArenaLayout
    readers: dict[ExecutorId, None] = field(default_factory=dict)
    sealed: bool = False


class Lendings:
    """All arenas of a host that are lent or were."""

    def __init__(self, host: str, *, sealed_max: int, log: Log) -> None:
        self._host = host
        self._log = log
        self._sealed_max = sealed_max
        self._arenas: dict[ExecutorId, _Arena] = {}

    @property
    def num_sealed(self) -> int:
        return sum(arena.sealed for arena in self._arenas.values())

    @property
    def sealed_bytes(self) -> int:
        """Memory that dead executors' arenas still take."""
        arenas = self._arenas.values()
        return sum(arena.layout.size_bytes for arena in arenas if arena.sealed)

    def memory(self, executor: ExecutorId) -> str:
        return f"{self._host}/kv/{executor}"

    def add(self, resident: Resident, layout: ArenaLayout, others: list[Resident]) -> None:
        """Lend an executor's arena to the others of its layout, and theirs to it."""
        executor, descriptor = resident.executor, resident.parts.get("arena")
        if executor in self._arenas or descriptor is None:
            return
        mine = _Arena(self.memory(executor), os.dup(descriptor), layout)
        self._arenas[executor] = mine
        for other in others:
            theirs = self._arenas.get(other.executor)
            if theirs is None or theirs is mine or theirs.sealed or theirs.layout != layout:
                continue
            self._lend(mine, other)
            self._lend(theirs, resident)

    def lend_segments(self, segments: dict[str, tuple[int, mmap.mmap]], reader: Resident) -> None:
        """Let an executor read the pool's memory in place."""
        for memory, (descriptor, page) in segments.items():
            if reader.birth is not None:
                note = Lent(memory=memory, size=len(page), arena=False)
                reader.birth.send(note, (descriptor,))

    def gone(self, executor: ExecutorId, others: list[Resident]) -> None:
        """An executor is dead: it reads nothing any more, and nobody begins to read of it."""
        for arena in list(self._arenas.values()):
            self.unmapped(executor, arena.memory)
        own = self._arenas.get(executor)
        if own is None:
            return
        own.sealed = True
        for other in others:
            if other.executor in own.readers and other.birth is not None:
                other.birth.send(Withdrawn(memory=own.memory))
        if own.readers:
            self._log.line("info", "arena.sealed", memory=own.memory, readers=len(own.readers),
                           sealed=self.num_sealed, bytes=self.sealed_bytes)  # fmt: skip
        self._drop_unread()
        while self.num_sealed > self._sealed_max:
            oldest = next(one for one in self._arenas.values() if one.sealed)
            self._log.line("warning", "arena.spoiled", memory=oldest.memory)
            _spoil(oldest)
            self._close(oldest)

    def unmapped(self, reader: ExecutorId, memory: str) -> None:
        """A reader has given a place back."""
        for arena in self._arenas.values():
            if arena.memory == memory:
                arena.readers.pop(reader, None)
        self._drop_unread()

    def _lend(self, arena: _Arena, reader: Resident) -> None:
        if reader.birth is None:
            return
        note = Lent(memory=arena.memory, size=arena.layout.size_bytes, arena=True)
        if reader.birth.send(note, (arena.descriptor,)):
            arena.readers[reader.executor] = None

    def _drop_unread(self) -> None:
        for arena in [one for one in self._arenas.values() if one.sealed and not one.readers]:
            self._close(arena)

    def _close(self, arena: _Arena) -> None:
        os.close(arena.descriptor)
        for executor in [number for number, one in self._arenas.items() if one is arena]:
            del self._arenas[executor]


def _spoil(arena: _Arena) -> None:
    """Let all blocks of a dead owner's arena begin other lives."""
    start, size = life_bytes(arena.layout)
    with mmap.mmap(arena.descriptor, arena.layout.directory_bytes) as page:
        lives = np.frombuffer(page, "<u4", size // 4, start).copy()
        page[start : start + size] = (lives ^ OTHER_LIFE).tobytes()
