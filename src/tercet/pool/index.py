"""What is known of every value, in columns of integers: about a hundred bytes a value.

    heads   [ 7 | - | 3 ...]      first entry of each bucket
    chain   [ - | - | - | 9 ...]  next entry of the same bucket
    word_a, word_b, check, size, part, space, and the columns of others (tiers, lists)

A value's number (its entry) is an index into all columns; numbers are used again. Buckets are split
one at a time while entries come (linear hashing), so no call ever moves all of them, and no dict of
ten million keys is needed.
"""

from array import array
from collections.abc import Iterator

from tercet.base.errors import must

NONE = 0xFFFFFFFF
_BUCKETS_FIRST = 16


class Index:
    """Finds, adds and forgets a value by its key; O(1) each."""

    def __init__(self) -> None:
        self._columns: list[tuple[array[int], int]] = []
        self.word_a = self.column("Q", 0)
        self.word_b = self.column("Q", 0)
        self.check_of = self.column("Q", 0)
        self.size = self.column("I", 0)
        self.part = self.column("I", 0)
        self.space = self.column("H", 0)
        self._chain = self.column("I", NONE)
        self._used = self.column("B", 0)
        self._free = array("I")
        self._heads = array("I", [NONE]) * _BUCKETS_FIRST
        self._mask = _BUCKETS_FIRST - 1
        self._split = 0
        self._count = 0

    def column(self, kind: str, fill: int) -> "array[int]":
        """Give a column of one's own, as long as all others; a new entry finds `fill` in it."""
        made: array[int] = array(kind, [fill]) * (len(self._columns[0][0]) if self._columns else 0)
        self._columns.append((made, fill))
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def bound(self) -> int:
        """All entries are below it."""
        return len(self._chain)

    @property
    def num_bytes(self) -> int:
        """Memory of all columns and buckets."""
        columns = sum(column.buffer_info()[1] * column.itemsize for column, _ in self._columns)
        return columns + len(self._heads) * 4 + len(self._free) * 4

    def find(self, word_a: int, word_b: int) -> int:
        """Give the entry of a key, or NONE."""
        entry = self._heads[self._bucket(word_a)]
        a, b, chain = self.word_a, self.word_b, self._chain
        while entry != NONE and (a[entry] != word_a or b[entry] != word_b):
            entry = chain[entry]
        return entry

    def add(self, word_a: int, word_b: int) -> int:
        """Give the new entry of a key that is not known."""
        if self._free:
            entry = self._free.pop()
            for column, fill in self._columns:
                column[entry] = fill
        else:
            entry = len(self._chain)
            must(entry < NONE, "the index is full")
            for column, fill in self._columns:
                column.append(fill)
        self.word_a[entry] = word_a
        self.word_b[entry] = word_b
        self._used[entry] = 1
        bucket = self._bucket(word_a)
        self._chain[entry] = self._heads[bucket]
        self._heads[bucket] = entry
        self._count += 1
        if self._count > len(self._heads):
            self._grow()
        return entry

    def forget(self, entry: int) -> None:
        """The entry's number may be used again."""
        must(self._used[entry], f"entry {entry} is forgotten, and was not there")
        bucket = self._bucket(self.word_a[entry])
        at = self._heads[bucket]
        if at == entry:
            self._heads[bucket] = self._chain[entry]
        else:
            while self._chain[at] != entry:
                at = self._chain[at]
            self._chain[at] = self._chain[entry]
        self._used[entry] = 0
        self._free.append(entry)
        self._count -= 1

    def is_used(self, entry: int) -> bool:
        """Say whether there is such an entry now."""
        return entry < len(self._used) and bool(self._used[entry])

    def __iter__(self) -> Iterator[int]:
        return (entry for entry, used in enumerate(self._used) if used)

    def check(self) -> None:
        """Raise unless every entry is in its bucket, once; O(entries)."""
        found = 0
        for bucket, head in enumerate(self._heads):
            entry = head
            while entry != NONE:
                found += 1
                must(self._used[entry], f"entry {entry} is free and in a bucket")
                must(self._bucket(self.word_a[entry]) == bucket, f"entry {entry} is lost")
                must(found <= self._count, "a bucket goes round")
                entry = self._chain[entry]
        must(found == self._count, f"{found} entries in buckets, {self._count} counted")
        must(found + len(self._free) == self.bound, "free and used entries are not all")

    def _bucket(self, word: int) -> int:
        bucket = word & self._mask
        if bucket < self._split:
            bucket = word & (2 * self._mask + 1)
        return bucket

    def _grow(self) -> None:
        """Split one bucket in two."""
        low, high = NONE, NONE
        bit = self._mask + 1
        entry = self._heads[self._split]
        while entry != NONE:
            following = self._chain[entry]
            if self.word_a[entry] & bit:
                self._chain[entry] = high
                high = entry
            else:
                self._chain[entry] = low
                low = entry
            entry = following
        self._heads[self._split] = low
        self._heads.append(high)
        self._split += 1
        if self._split == bit:
            self._mask = 2 * self._mask + 1
            self._split = 0
