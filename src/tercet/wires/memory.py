"""The wire within a process, in NumPy: the plainest one, which tests compare the others with."""

from tercet.messages.kv import Strip
from tercet.wires import sums_plain
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire


class MemoryWire(SharedWire):
    """As `SharedWire`, with nothing native in it."""

    name = "memory"

    def __init__(self, regions: Regions) -> None:
        super().__init__(regions, _copied)


def _copied(
    source: tuple[int, Strip], target: tuple[int, Strip], part_bytes: int | None
) -> int | None:
    before = None if part_bytes is None else sums_plain.FIRST
    fold = sums_plain.gather(source, target, part_bytes or 0, before)
    return fold if part_bytes is not None else None
