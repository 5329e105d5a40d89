"""What goes first when a tier has no room: chosen by name in the configuration.

    lru        one list; whatever was used last stays longest
    adaptive   recent ──used again──▶ frequent       both lose their oldest; which one does is
                  │ evicted               │ evicted  learned from what is missed (after ARC, Megiddo
                  ▼                       ▼          and Modha 2003): a value that comes back soon
               ghosts of recent   ghosts of frequent after its eviction should have stayed

A policy sees the values of one part of a tier (`tiers`): the common one, or a namespace with a
quota. An entry that somebody holds is in none of its lists.
"""

from array import array
from collections.abc import Callable, Mapping
from typing import Protocol

from tercet.pool.index import NONE, Index
from tercet.pool.lists import Lists

_TABLE_FIRST = 1024
_WAYS = 8
_SLOTS_EACH = 4
"""Slots for each value of the list: two lists of ghosts, each as long as the list itself."""
_LATE = 0xFFFFFFFF


class Policy(Protocol):
    """The order of eviction of one part of a tier; O(1) a call."""

    def expect(self, word: int) -> None:
        """A value with this second word of its key is about to come, if there is room."""
        ...

    def add(self, entry: int) -> None:
        """A value came into the tier."""
        ...

    def use(self, entry: int) -> None:
        """It was asked for; it may be held or not."""
        ...

    def hold(self, entry: int) -> None:
        """It cannot go now."""
        ...

    def release(self, entry: int) -> None:
        """It can go again."""
        ...

    def remove(self, entry: int, *, evicted: bool) -> None:
        """It left the tier; it may be held or not."""
        ...

    def victim(self) -> int:
        """Give what has to go first, or NONE if all is held."""
        ...


class Lru:
    """Whatever was used last stays longest."""

    def __init__(self, index: Index, lists: Lists) -> None:  # noqa: ARG002  as others
        self._lists = lists
        self._all = lists.make()

    def expect(self, word: int) -> None:
        """Whatever comes, the oldest goes."""

    def add(self, entry: int) -> None:
        self._lists.push(self._all, entry)

    def use(self, entry: int) -> None:
        if self._lists.list_of(entry):
            self._lists.remove(entry)
            self._lists.push(self._all, entry)

    def hold(self, entry: int) -> None:
        self._lists.remove(entry)

    def release(self, entry: int) -> None:
        self._lists.push(self._all, entry)

    def remove(self, entry: int, *, evicted: bool) -> None:  # noqa: ARG002  as in the protocol
        if self._lists.list_of(entry):
            self._lists.remove(entry)

    def victim(self) -> int:
        return self._lists.oldest(self._all)


class Ghosts:
    """Which keys were evicted lately: eight words a bucket, at most half of them in use.

        fingerprint 31 | list 1 | clock of that list's evictions 32

    None may be lost for want of a slot: a chain with a hole in it is of no use.
    """

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 * _TABLE_FIRST))
        self._clock = [0, 0]
        self.sizes = [0, 0]

    def add(self, word: int, which: int, limit: int) -> None:
        """Remember a key that was evicted from list `which`, for `limit` evictions."""
        while _SLOTS_EACH * limit > len(self._table):
            self._table = array("Q", bytes(16 * len(self._table)))
            self.sizes = [0, 0]
        clock = self._clock[which] = self._clock[which] + 1 & _LATE
        first = self._bucket(word)
        best, best_age = first, -1
        for slot in range(first, first + _WAYS):
            found = self._table[slot]
            age = self._age(found) if found else _LATE
            if age > best_age:
                best, best_age = slot, age
        self._table[best] = (word >> 33) << 33 | which << 32 | clock
        self.sizes[which] = min(self.sizes[which] + 1, limit)

    def which(self, word: int, limit: int) -> int:
        """Give the list that lost this key lately, or -1."""
        slot = self._find(word, limit)
        return -1 if slot < 0 else self._table[slot] >> 32 & 1

    def take(self, word: int, limit: int) -> int:
        """The same, and forget it."""
        slot = self._find(word, limit)
        if slot < 0:
            return -1
        which = self._table[slot] >> 32 & 1
        self._table[slot] = 0
        self.sizes[which] = max(0, self.sizes[which] - 1)
        return which

    def _find(self, word: int, limit: int) -> int:
        first, mark = self._bucket(word), word >> 33
        for slot in range(first, first + _WAYS):
            found = self._table[slot]
            if found >> 33 == mark and found and self._age(found) < limit:
                return slot
        return -1

    def _age(self, found: int) -> int:
        return self._clock[found >> 32 & 1] - (found & _LATE) & _LATE

    def _bucket(self, word: int) -> int:
        return word % (len(self._table) // _WAYS) * _WAYS


class Adaptive:
    """What came once goes before what came again, as far as that has paid lately."""

    def __init__(self, index: Index, lists: Lists) -> None:
        self._index = index
        self._lists = lists
        self._recent = lists.make()
        self._frequent = lists.make()
        self._again = lists.marks
        self._held = [0, 0]
        self._ghosts = Ghosts()
        self._aim = -1.0
        """How many values that came once shall stay; half of all, before anything is learned."""
        self._coming = -1
        """Which list lost what is about to come."""

    def expect(self, word: int) -> None:
        size = self._size(0) + self._size(1)
        self._coming = which = self._ghosts.which(word, size)
        if which >= 0:
            ours, others = self._ghosts.sizes[which], self._ghosts.sizes[1 - which]
            step = max(1.0, others / max(1, ours))
            aim = self._aim + step if which == 0 else self._aim - step
            self._aim = min(max(0.0, aim), float(size))

    def add(self, entry: int) -> None:
        size = self._size(0) + self._size(1)
        self._again[entry] = self._ghosts.take(self._index.word_b[entry], size) >= 0
        self._coming = -1
        self._push(entry)

    def use(self, entry: int) -> None:
        if self._lists.list_of(entry):
            self._lists.remove(entry)
            self._again[entry] = 1
            self._push(entry)
        elif not self._again[entry]:
            self._held[0] -= 1
            self._held[1] += 1
            self._again[entry] = 1

    def hold(self, entry: int) -> None:
        self._lists.remove(entry)
        self._held[self._again[entry]] += 1

    def release(self, entry: int) -> None:
        self._held[self._again[entry]] -= 1
        self._push(entry)

    def remove(self, entry: int, *, evicted: bool) -> None:
        which = self._again[entry]
        if self._lists.list_of(entry):
            self._lists.remove(entry)
        else:
            self._held[which] -= 1
        if evicted:
            size = self._size(0) + self._size(1) + 1
            self._ghosts.add(self._index.word_b[entry], which, size)

    def victim(self) -> int:
        if self._aim < 0:
            self._aim = (self._size(0) + self._size(1)) / 2
        recent, frequent = self._lists.oldest(self._recent), self._lists.oldest(self._frequent)
        too_many = self._size(0) - self._aim
        if frequent == NONE or (recent != NONE and too_many >= (self._coming != 1)):
            return recent
        return frequent

    def _size(self, which: int) -> int:
        return self._lists.size(self._frequent if which else self._recent) + self._held[which]

    def _push(self, entry: int) -> None:
        self._lists.push(self._frequent if self._again[entry] else self._recent, entry)


POLICIES: Mapping[str, Callable[[Index, Lists], Policy]] = {"lru": Lru, "adaptive": Adaptive}
