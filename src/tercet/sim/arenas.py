"""The arenas of a host, and the range of block ids through which one engine reads several of them.

ids     | own arena | lent to it | lent to it | ...     id = place x blocks + index
lives   one array of all generations of the host, a stretch for each arena that ever was
"""

import numpy as np

from tercet.base.errors import must
from tercet.devices.contract import I64, U64
from tercet.sim.memories import U32, Arena

ARENAS_MAX = 1024
"""Of a host, over a whole run."""


class HostArenas:
    """Makes the arenas of one host."""

    def __init__(self, host: str, *, num_blocks: int, layers: int) -> None:
        self.host = host
        self.num_blocks = num_blocks
        self.lives: U32 = np.zeros(ARENAS_MAX * num_blocks, np.uint32)
        self._layers = layers
        self._first: dict[str, int] = {}
        """By memory: where its generations begin."""

    def make(self, name: str) -> Arena:
        must(len(self._first) < ARENAS_MAX, f"{self.host} had {ARENAS_MAX} arenas")
        first = self._first[name] = len(self._first) * self.num_blocks
        lives = self.lives[first : first + self.num_blocks]
        return Arena(name, host=self.host, lives=lives, layers=self._layers)

    def first(self, name: str) -> int:
        return self._first[name]


class Range:
    """What one engine can name: its own arena and those that are lent to it (`engine.KvBlocks`)."""

    def __init__(self, arenas: HostArenas, own: Arena) -> None:
        self.own = own
        self._arenas = arenas
        self._places: list[Arena | None] = [own]
        self._clock: U64 = np.zeros(1, np.uint64)

    def lend(self, arena: Arena) -> int:
        """The first id of another's arena from now on."""
        free = next((at for at, one in enumerate(self._places) if one is None), len(self._places))
        self._places[free:] = [arena, *self._places[free + 1 :]]
        return free * self._arenas.num_blocks

    def unmap(self, name: str) -> Arena | None:
        """Give a lent arena's place back; it, if it was there."""
        for at, arena in enumerate(self._places):
            if arena is not None and arena is not self.own and arena.name == name:
                self._places[at] = None
                return arena
        return None

    def lent(self) -> list[Arena]:
        return [one for one in self._places[1:] if one is not None]

    def tags(self, block_ids: I64) -> U64:
        """[blocks, layers] what the blocks are now."""
        found: U64 = np.zeros((len(block_ids), self.own.layers), np.uint64)
        places, indices = np.divmod(block_ids, self._arenas.num_blocks)
        for place in range(int(places.max(initial=-1)) + 1):
            mine = places == place
            if mine.any():
                arena = self._at(place)
                found[mine] = arena.blocks[indices[mine]]
        return found

    # what an engine asks

    @property
    def num_ids(self) -> int:
        return len(self._places) * self._arenas.num_blocks

    @property
    def own_blocks(self) -> range:
        return range(self._arenas.num_blocks)

    @property
    def lives(self) -> U32:
        return self._arenas.lives

    def life_places(self, block_ids: I64) -> I64:
        places, indices = np.divmod(block_ids, self._arenas.num_blocks)
        starts = [0 if one is None else self._arenas.first(one.name) for one in self._places]
        for place in places.tolist():
            self._at(place)
        found: I64 = np.array(starts, np.int64)[places] + indices
        return found

    def renew(self, block_ids: I64, lives: U32) -> None:
        top = int(block_ids.max(initial=0))
        must(top < self._arenas.num_blocks, f"block {top} is renewed, which is another's")
        self.own.renew(block_ids, lives)

    def clock(self) -> U64:
        return self._clock

    def _at(self, place: int) -> Arena:
        arena = self._places[place]
        if arena is None:
            must(False, f"{self.own.name}: blocks at place {place}, where no arena is mapped")
            raise AssertionError
        return arena
