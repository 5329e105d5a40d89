"""I2: no block is given to a task while another one uses it, seen from the plans alone.

plan n    opens slot 4 with blocks [7 9 | 3]     7, 9: computed, shared; 3: fresh, its alone
          slot 2 grows by 12                      12: fresh, its alone
a fresh block may stand in no other open slot's table; a closed slot gives its blocks back
"""

from array import array

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.messages.plan import StepPlan


class BlockChecker:
    """The tables of one executor's slots, rebuilt from its plans."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tables: dict[int, list[int]] = {}
        self._users: dict[int, int] = {}
        """How many open slots have each block in their table."""

    def look(self, plan: StepPlan) -> None:
        """Follow one plan; the work is proportional to the blocks it opens, adds and closes."""
        for slot in plan.closes:
            for block in self._tables.pop(slot, ()):
                self._users[block] -= 1
        for opening in plan.opens:
            must(
                opening.slot not in self._tables,
                f"{self._name} opens slot {opening.slot}, which is open",
            )
            shared = opening.computed // BLOCK_TOKENS
            self._tables[opening.slot] = []
            for place, block in enumerate(_integers(opening.blocks)):
                self._add(opening.slot, block, fresh=place >= shared)
        blocks = iter(_integers(plan.blocks))
        for slot, growth in zip(_integers(plan.slots), _integers(plan.growth), strict=True):
            for _ in range(growth):
                self._add(slot, next(blocks), fresh=True)

    def _add(self, slot: int, block: int, *, fresh: bool) -> None:
        users = self._users.get(block, 0)
        must(
            not (fresh and users),
            f"{self._name} gives block {block} to slot {slot} while {users} others use it",
        )
        self._users[block] = users + 1
        self._tables[slot].append(block)


def _integers(data: bytes) -> "array[int]":
    return array("i", data)
