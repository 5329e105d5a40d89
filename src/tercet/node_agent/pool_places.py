"""What the places of a share are called outside: names of memories, strips, values."""

from array import array

from tercet.messages.kv import PoolValue, Strip
from tercet.pool.store import Store

_ONE = array("i", [0]).tobytes()


def dram_name(host: str, segment: int) -> str:
    return f"{host}/dram/{segment}"


def disk_name(host: str) -> str:
    return f"{host}/disk/0"


class Places:
    """The strips of one host's share."""

    def __init__(self, host: str, store: Store) -> None:
        self._host = host
        self.disk_name = disk_name(host)
        self._store = store

    def dram(self, place: int, size: int) -> Strip:
        """Give the strip of a place in memory."""
        segment, at = self._store.dram.segments.segment_of(place)
        return _strip(dram_name(self._host, segment), at, size)

    def disk(self, place: int, size: int) -> Strip:
        """Give the strip of a place on disk."""
        disk = self._store.disk
        at = 0 if disk is None else disk.layout.unit_at(place)
        return _strip(self.disk_name, at, size)

    def value(self, entry: int) -> PoolValue:
        """Give a value that lies in memory, as its readers are told."""
        index = self._store.index
        source = self.dram(self._store.dram.place(entry), index.size[entry])
        return PoolValue(source=source, check=index.check_of[entry])


def _strip(memory: str, at: int, size: int) -> Strip:
    return Strip(memory=memory, start=at, stride=size, length=size, units=_ONE)
