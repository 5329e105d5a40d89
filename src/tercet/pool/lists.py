"""Many doubly linked lists over the entries of an index: two integers and a byte an entry.

oldest ──▶ entry ──▶ entry ──▶ newest          an entry is in one list of a tier, or in none
"""

from collections.abc import Iterator

from tercet.base.errors import must
from tercet.pool.index import NONE, Index

NO_LIST = 0


class Lists:
    """The lists of one tier; O(1) a call."""

    def __init__(self, index: Index) -> None:
        self._before = index.column("I", NONE)
        self._after = index.column("I", NONE)
        self._of = index.column("H", NO_LIST)
        self.marks = index.column("B", 0)
        """A number of each entry for whoever keeps the lists."""
        self._oldest = [NONE]
        self._newest = [NONE]
        self._sizes = [0]

    def make(self) -> int:
        """Give the number of a new, empty list."""
        self._oldest.append(NONE)
        self._newest.append(NONE)
        self._sizes.append(0)
        return len(self._sizes) - 1

    def size(self, of: int) -> int:
        return self._sizes[of]

    def list_of(self, entry: int) -> int:
        """Give the list that the entry is in, or NO_LIST."""
        return self._of[entry]

    def oldest(self, of: int) -> int:
        """Give the oldest entry of a list, or NONE."""
        return self._oldest[of]

    def push(self, of: int, entry: int) -> None:
        """Make an entry the newest of a list; it is in none."""
        must(self._of[entry] == NO_LIST, f"entry {entry} is in a list already")
        last = self._newest[of]
        self._of[entry] = of
        self._before[entry] = last
        self._after[entry] = NONE
        if last == NONE:
            self._oldest[of] = entry
        else:
            self._after[last] = entry
        self._newest[of] = entry
        self._sizes[of] += 1

    def remove(self, entry: int) -> int:
        """Take an entry out of its list; gives which that was."""
        of = self._of[entry]
        must(of != NO_LIST, f"entry {entry} is in no list")
        before, after = self._before[entry], self._after[entry]
        if before == NONE:
            self._oldest[of] = after
        else:
            self._after[before] = after
        if after == NONE:
            self._newest[of] = before
        else:
            self._before[after] = before
        self._of[entry] = NO_LIST
        self._sizes[of] -= 1
        return of

    def members(self, of: int) -> Iterator[int]:
        """Give the entries of a list, oldest first."""
        entry = self._oldest[of]
        while entry != NONE:
            yield entry
            entry = self._after[entry]
