"""Namespaces: whose values are whose, how much each may fill.

A key is stored mixed with the digest of its namespace, so the same key in two namespaces is two
values, and nobody finds what another stored. Namespaces that hold nothing and have no quota are
forgotten.
"""

from collections.abc import Sequence
from hashlib import blake2b

from tercet.base.errors import must
from tercet.pool.config import Quota

COMMON = 0
"""The part of a tier that all namespaces without a quota share."""
NUM_MAX = 0xFFFF
DIGEST_BYTES = 16


def digest_of(name: str) -> bytes:
    """Give what a namespace is called in labels."""
    said = name.encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=DIGEST_BYTES, person=b"tercet.space").digest()


class Namespaces:
    """Numbers of namespaces, and how many values each has."""

    def __init__(self, quotas: Sequence[Quota] = ()) -> None:
        self._numbers: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._values: dict[int, int] = {}
        self._free: list[int] = []
        self._next = 1
        self.names: dict[int, str] = {}
        """Of those that were named since the start: a disk knows digests alone."""
        self.quotas: dict[int, Quota] = {}
        """Numbers of those that have one: each fills a part of its own."""
        for quota in quotas:
            number = self.number(digest_of(quota.namespace))
            must(number is not None, "more quotas than namespaces")
            if number is not None:
                self.quotas[number] = quota
                self.names[number] = quota.namespace

    def known(self, digest: bytes) -> int | None:
        """Give the number of a namespace that holds something or has a quota."""
        return self._numbers.get(digest)

    def number(self, digest: bytes) -> int | None:
        """Give its number, a new one if need be; None if there are too many."""
        found = self._numbers.get(digest)
        if found is not None:
            return found
        if self._free:
            number = self._free.pop()
        elif self._next < NUM_MAX:
            number = self._next
            self._next += 1
        else:
            return None
        self._numbers[digest] = number
        self._digests[number] = digest
        self._values[number] = 0
        return number

    def digest(self, number: int) -> bytes:
        return self._digests[number]

    def words(self, number: int, key: bytes) -> tuple[int, int]:
        """Mix a key with its namespace; mixing the result again gives the key."""
        digest = self._digests[number]
        return (
            int.from_bytes(key[:8], "little") ^ int.from_bytes(digest[:8], "little"),
            int.from_bytes(key[8:16], "little") ^ int.from_bytes(digest[8:], "little"),
        )

    def key(self, number: int, word_a: int, word_b: int) -> bytes:
        """Give the key that was mixed."""
        mixed = word_a.to_bytes(8, "little") + word_b.to_bytes(8, "little")
        a, b = self.words(number, mixed)
        return a.to_bytes(8, "little") + b.to_bytes(8, "little")

    def part(self, number: int) -> int:
        """Give the part of a tier that its values fill."""
        return number if number in self.quotas else COMMON

    def enter(self, number: int) -> None:
        """A value (or the wish for one) is in this namespace."""
        self._values[number] += 1

    def leave(self, number: int) -> None:
        """One less; the last one's namespace is forgotten."""
        self._values[number] -= 1
        must(self._values[number] >= 0, f"namespace {number} lost more values than it had")
        if not self._values[number] and number not in self.quotas:
            del self._numbers[self._digests.pop(number)]
            del self._values[number]
            self.names.pop(number, None)
            self._free.append(number)

    def values(self) -> dict[int, int]:
        """Give how many values each has."""
        return dict(self._values)
