"""The pool under any order of puts, reads, evictions and failures.

What is found and held is what was stored under that key in that namespace, byte for byte; what is
held and used adds up after every event; everybody is answered, once.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_world import PAGE, PoolWorld, key_of, tag_of

from tercet.messages.events import MoveEnd
from tercet.pool.config import PoolConfig, Quota

HOSTS = ("a", "b", "c")
SPACES = ("n", "n", "m", "quoted")
STEPS = 250
BAD_ENDS = (MoveEnd.CORRUPT, MoveEnd.STALE, MoveEnd.GONE, MoveEnd.LATE, MoveEnd.FULL)
LEASE_MS = 10_000


class Walk:
    """Things that happen to a pool, drawn from a seed."""

    def __init__(self, seed: int, policy: str) -> None:
        self.rand = Random(seed)
        self.sound = self.rand.random() < 0.5
        """Nothing breaks, only order and time differ."""
        config = PoolConfig(
            dram_bytes=self.rand.choice([12, 24, 60]) * PAGE,
            disk_path="x",
            disk_bytes=self.rand.choice([40, 200]) * PAGE,
            quotas=(Quota(namespace="quoted", dram_bytes=4 * PAGE, disk_bytes=6 * PAGE),),
            policy=policy,
            moves_max=self.rand.choice([2, 16]),
            rehome_batch=3,
        )
        self.world = PoolWorld(config, HOSTS[: self.rand.randint(1, 3)])
        self.open: list[tuple[str, int, str, list[int], int]] = []
        """Host, ask, namespace, numbers, when it was wanted."""
        self.puts: list[tuple[str, int, int]] = []
        self.seen: Counter[str] = Counter()
        self.acts = [
            (self.put, 10),
            (self.find, 10),
            (self.want, 10),
            (self.done, 5),
            (self.deliver, 30),
            (self.move, 30),
            (self.wait, 4),
            (self.rot, 0 if self.sound else 4),
            (self.fail, 0 if self.sound else 3),
            (self.executor_dies, 0 if self.sound else 1),
            (self.host_dies, 0 if self.sound else 1),
            (self.disks_hang, 0 if self.sound else 1),
            (self.let_go, 0 if self.sound else 1),
            (self.host_comes_back, 3),
        ]

    def go(self) -> None:
        acts, weights = zip(*self.acts, strict=True)
        for act in self.rand.choices(acts, weights, k=STEPS):
            act()
            self.look()
        self.end()

    def host(self) -> str:
        return self.rand.choice([name for name, host in self.world.hosts.items() if host.alive])

    def numbers(self) -> tuple[str, list[int]]:
        """A chain of one size a namespace, as a model's values are, or of a few sizes."""
        first = self.rand.randrange(0, 30, 5)
        return self.rand.choice(SPACES), list(range(first, first + self.rand.randint(1, 6)))

    # acts

    def put(self) -> None:
        name, (space, numbers) = self.host(), self.numbers()
        size = PAGE * self.rand.choice([1, 1, 1, 3])
        put = self.world.put(name, numbers, size=size, namespace=space)
        self.puts.append((name, put, len(numbers)))

    def find(self) -> None:
        name, (space, numbers) = self.host(), self.numbers()
        ask = self.world.find(name, numbers, namespace=space)
        self.open.append((name, ask, space, numbers, 0))

    def want(self) -> None:
        for at, (name, ask, space, numbers, wanted) in enumerate(self.open):
            found = self.world.reader(name).found.get(ask)
            if found is not None and found.tiers and not wanted:
                self.seen["found"] += len(found.tiers)
                self.world.want(name, ask, self.rand.randint(1, len(found.tiers)))
                self.open[at] = (name, ask, space, numbers, self.world.now)
                return

    def done(self) -> None:
        if self.open:
            name, ask, *_ = self.open.pop(self.rand.randrange(len(self.open)))
            broken = (0,) if self.rand.random() < 0.1 and not self.sound else ()
            self.world.done(name, ask, broken)

    def deliver(self) -> None:
        for _ in range(self.rand.randint(1, 12)):
            self.world.deliver()

    def move(self) -> None:
        host = self.world.hosts[self.host()]
        for _ in range(self.rand.randint(1, 12)):
            self.world.move(host)

    def wait(self) -> None:
        ms = self.rand.choice([10, 60, 300, 3000])
        self.world.wait(ms)
        late = self.world.now - (LEASE_MS - 100) * 1_000_000
        self.open = [one for one in self.open if not one[4] or one[4] > late]

    def rot(self) -> None:
        """Some byte of a disk turns over."""
        places = sorted(place for place in self.world.bytes if "/disk/" in place[0])
        if places:
            self.world.bytes[self.rand.choice(places)] = -7

    def fail(self) -> None:
        self.world.next_end.extend([self.rand.choice(BAD_ENDS)] * self.rand.randint(1, 4))

    def disks_hang(self) -> None:
        self.world.disks_hang = True

    def let_go(self) -> None:
        self.world.let_go()

    def executor_dies(self) -> None:
        name = self.host()
        self.world.leave(name)
        self._forget(name)

    def host_dies(self) -> None:
        name = self.host()
        if sum(host.alive for host in self.world.hosts.values()) > 1:
            self.world.kill(name)
            self.world.members()
            self._forget(name)
            self.open = [one for one in self.open if not one[4]]

    def host_comes_back(self) -> None:
        dead = [name for name in HOSTS if not self._lives(name)]
        if dead:
            former = self.world.hosts.get(dead[0])
            labels = {} if former is None else dict(former.labels)
            self.world.start(dead[0], labels=labels)
            self.world.members()

    def _lives(self, name: str) -> bool:
        return name in self.world.hosts and self.world.hosts[name].alive

    def _forget(self, name: str) -> None:
        self.open = [one for one in self.open if one[0] != name]
        self.puts = [one for one in self.puts if one[0] != name]

    # what must hold

    def look(self) -> None:
        for name, ask, space, numbers, wanted in self.open:
            ready = self.world.reader(name).ready.get(ask, {}) if wanted else {}
            for place, value in ready.items():
                if value is not None:
                    self.seen["held"] += 1
                    assert self.world.content(value) == tag_of(space, key_of(numbers[place]))
        self.world.check()

    def end(self) -> None:
        self.world.next_end.clear()
        self.world.let_go()
        self.world.run(25_000, step=100)
        for name, put, count in self.puts:
            assert 0 <= self.world.reader(name).stored[put] <= count, "a put hangs"
        for host in self.world.hosts.values():
            stats = host.machine.pooling.stats()
            if host.alive and stats is not None and stats.disk is not None:
                for tier in (stats.dram, stats.disk):
                    assert not tier.held, "something is held for ever"
                    assert not tier.reserved, "a place is reserved for ever"
        self.world.check()
        for fact in self.world.facts:
            self.seen[fact.name] += 1


@pytest.mark.parametrize("policy", ["lru", "adaptive"])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_whatever_happens_what_is_held_is_right(policy: str, seed: int) -> None:
    Walk(seed, policy).go()


def test_the_walks_go_everywhere() -> None:
    """The property above would be empty if nothing was ever found, brought, or broken."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        walk = Walk(seed, "lru")
        walk.go()
        seen += walk.seen
    wanted = ("held", "pool.not_stored", "pool.corrupt", "pool.scanned", "pool.rehomed")
    for name in (*wanted, "pool.disk_full", "pool.disk_off", "pool.lease_expired"):
        assert seen[name], f"{name} never happened: {seen}"
