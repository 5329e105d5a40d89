"""Which arenas of a host are lent to whom, as an agent keeps it (runtime/lendings.py).

ready      every executor gets every other one's arena, read-only
dead       its arena is *sealed*: withdrawn from readers, kept while one has it mapped
too many   sealed ones at a time: their blocks begin other lives, so that readers find them stale
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tercet.base.ids import ExecutorId
from tercet.messages.events import ArenaLent
from tercet.sim.arenas import Range
from tercet.sim.memories import Arena, Memories

OTHER_LIFE = np.uint32(1 << 31)


@dataclass(slots=True)
class _Lent:
    arena: Arena
    readers: dict[ExecutorId, None] = field(default_factory=dict)
    sealed: bool = False
    ready: bool = False


class Lendings:
    """All arenas of a host, until nobody has them mapped."""

    def __init__(self, memories: Memories, *, sealed_max: int) -> None:
        self._memories = memories
        self._sealed_max = sealed_max
        self._lent: dict[ExecutorId, _Lent] = {}

    @property
    def num_sealed(self) -> int:
        return sum(one.sealed for one in self._lent.values())

    def made(self, executor: ExecutorId, arena: Arena) -> None:
        self._lent[executor] = _Lent(arena)

    def ready(
        self, executor: ExecutorId, ranges: Mapping[ExecutorId, Range]
    ) -> list[tuple[ArenaLent, ExecutorId]]:
        """Lend to it, and of it; what each reader is told."""
        mine = self._lent[executor]
        mine.ready = True
        told = []
        for other, theirs in self._lent.items():
            if theirs is mine or theirs.sealed or not theirs.ready:
                continue
            for lent, reader in ((theirs, executor), (mine, other)):
                if reader not in ranges:
                    continue  # dead, and the agent does not know yet
                first = ranges[reader].lend(lent.arena)
                lent.readers[reader] = None
                count = lent.arena.num_blocks
                event = ArenaLent(memory=lent.arena.name, first_block=first, num_blocks=count)
                told.append((event, reader))
        return told

    def gone(self, executor: ExecutorId) -> list[tuple[str, ExecutorId]]:
        """An executor is dead; (memory, reader) of those from whom its arena is withdrawn."""
        for one in self._lent.values():
            one.readers.pop(executor, None)
        own = self._lent.get(executor)
        if own is None:
            return []
        own.sealed = True
        own.arena.owner = None
        withdrawn = [(own.arena.name, reader) for reader in own.readers]
        self._drop_unread()
        while self.num_sealed > self._sealed_max:
            oldest = next(number for number, one in self._lent.items() if one.sealed)
            self._lent[oldest].arena.lives ^= OTHER_LIFE
            self._close(oldest)
        return withdrawn

    def unmapped(self, reader: ExecutorId, memory: str, mapped: Range) -> None:
        """A reader has given a place back."""
        mapped.unmap(memory)
        for one in self._lent.values():
            if one.arena.name == memory:
                one.readers.pop(reader, None)
        self._drop_unread()

    def lose_all(self) -> None:
        """The host has lost its memory."""
        for executor in list(self._lent):
            self._lent[executor].arena.owner = None
            self._close(executor)

    def _drop_unread(self) -> None:
        for executor in [n for n, one in self._lent.items() if one.sealed and not one.readers]:
            self._close(executor)

    def _close(self, executor: ExecutorId) -> None:
        self._memories.remove(self._lent.pop(executor).arena.name)
