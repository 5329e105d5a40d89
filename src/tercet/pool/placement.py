"""Where a key is at home: rendezvous hashing over the names of hosts.

    weight(key, host) = mix(key, seed of host); the home is the host with the greatest weight

Every host can tell it from the list of hosts alone. A host that joins takes over the keys for
which it weighs most, and no other key moves; one that leaves gives up its own keys only.
"""

from collections.abc import Iterable
from hashlib import blake2b

_MASK = (1 << 64) - 1
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def seed(host: str) -> int:
    """Give the constant of a host; the same in every process."""
    name = host.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8, person=b"tercet.home").digest(), "little")


def weigh(word: int, of_host: int) -> int:
    """Give a host's weight for a key's first word: the finish of splitmix64, every bit counts."""
    mixed = word ^ of_host
    mixed = (mixed ^ mixed >> 30) * _FIRST & _MASK
    mixed = (mixed ^ mixed >> 27) * _SECOND & _MASK
    return mixed ^ mixed >> 31


class Placement:
    """The homes of all keys over one list of hosts."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self.hosts = tuple(sorted(dict.fromkeys(hosts)))
        self._seeds = tuple((seed(host), host) for host in self.hosts)

    def home(self, key: bytes) -> str:
        """Give the home of a key; empty where there are no hosts."""
        if len(self._seeds) < 2:
            return self.hosts[0] if self.hosts else ""
        word = int.from_bytes(key[:8], "little")
        return max((weigh(word, number), host) for number, host in self._seeds)[1]

    def ranked(self, key: bytes) -> tuple[str, ...]:
        """Give all hosts, the home first, then who would be it without those before."""
        word = int.from_bytes(key[:8], "little")
        order = sorted(((weigh(word, number), host) for number, host in self._seeds), reverse=True)
        return tuple(host for _, host in order)


def ranked(key: bytes, hosts: Iterable[str]) -> tuple[str, ...]:
    """Give the hosts in the order in which the key is at home there."""
    return Placement(hosts).ranked(key)
