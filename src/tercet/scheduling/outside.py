"""Whoever holds blocks of the arena beside its tasks: leases, fetches, stores.

Their blocks come back by themselves, in bounded time. Before tasks take blocks from each other they
take back those that were only reserved: what is lent stays, since somebody reads it.
"""

from typing import Protocol


class Outside(Protocol):
    @property
    def num_holding(self) -> int:
        """How many of them hold blocks."""
        ...

    def give_back(self) -> bool:
        """Free the newest blocks that are only reserved; false: there are none."""
        ...

    def unblock(self) -> bool:
        """Tasks wait, none runs and none finds room: do what ends it, since what holds the blocks
        may wait for us; true if some are free now.
        """
        ...


class _Nobody:
    num_holding = 0

    def give_back(self) -> bool:
        return False

    def unblock(self) -> bool:
        return False


NOBODY: Outside = _Nobody()
