"""The pool under any order of puts, reads, evictions and failures.

What is found and held is what was stored under that key in that namespace, byte for byte; what is
held and used adds up after every event; everybody is answered, once.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pool_world import PAGE, PoolWorld, key_of, tag_of

from tercet.messages.events import MoveEnd
from tercet.pool.config import PoolConfig, Quota

NUMBERS = st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True)
HOSTS = ("a", "b", "c")
SPACES = ("n", "m", "quoted")
ENDS = st.lists(st.sampled_from(list(MoveEnd)), min_size=1, max_size=4)


class PoolMachine(RuleBasedStateMachine):
    policy = "lru"

    def __init__(self) -> None:
        super().__init__()
        config = PoolConfig(
            dram_bytes=20 * PAGE,
            disk_path="x",
            disk_bytes=64 * PAGE,
            quotas=(Quota(namespace="quoted", dram_bytes=4 * PAGE, disk_bytes=6 * PAGE),),
            policy=self.policy,
            moves_max=4,
            rehome_batch=3,
        )
        self.world = PoolWorld(config, HOSTS)
        self.open: list[tuple[str, int, str, list[int]]] = []
        self.puts: list[tuple[str, int, int]] = []

    def alive(self) -> list[str]:
        return [name for name, host in self.world.hosts.items() if host.alive]

    @rule(
        at=st.integers(0, 2),
        numbers=NUMBERS,
        pages=st.integers(1, 3),
        space=st.sampled_from(SPACES),
    )
    def put(self, at: int, numbers: list[int], pages: int, space: str) -> None:
        name = self.alive()[at % len(self.alive())]
        put = self.world.put(name, numbers, size=pages * PAGE, namespace=space)
        self.puts.append((name, put, len(numbers)))

    @rule(
        at=st.integers(0, 2),
        numbers=NUMBERS,
        space=st.sampled_from(SPACES),
        count=st.integers(1, 9),
    )
    def read(self, at: int, numbers: list[int], space: str, count: int) -> None:
        name = self.alive()[at % len(self.alive())]
        ask = self.world.find(name, numbers, namespace=space)
        self.open.append((name, ask, space, numbers))
        if count % 3 == 0:
            self.world.settle()
            self.world.want(name, ask, count)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99), broken=st.booleans())
    def done(self, at: int, broken: bool) -> None:
        name, ask, _, _ = self.open.pop(at % len(self.open))
        if self.world.hosts[name].alive:
            self.world.done(name, ask, (0,) if broken else ())

    @rule(count=st.integers(1, 20))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.world.deliver()

    @rule(count=st.integers(1, 6), at=st.integers(0, 2))
    def move(self, count: int, at: int) -> None:
        host = self.world.hosts[self.alive()[at % len(self.alive())]]
        for _ in range(count):
            self.world.move(host)

    @rule(ends=ENDS)
    def fail(self, ends: list[MoveEnd]) -> None:
        self.world.next_end.extend(ends)

    @rule(number=st.integers(0, 99))
    def rot(self, number: int) -> None:
        """Some byte of a disk turns over."""
        places = sorted(place for place in self.world.bytes if "/disk/" in place[0])
        if places:
            self.world.bytes[places[number % len(places)]] = -7

    @rule(ms=st.sampled_from([10, 60, 300, 3000, 11000]))
    def wait(self, ms: int) -> None:
        held = self.open if ms < 5000 else []
        self.world.wait(ms)
        self.open = held

    @rule(at=st.integers(0, 2))
    def executor_dies(self, at: int) -> None:
        name = self.alive()[at % len(self.alive())]
        self.world.leave(name)
        self.open = [one for one in self.open if one[0] != name]
        self.puts = [one for one in self.puts if one[0] != name]

    @precondition(lambda self: len(self.alive()) > 1)
    @rule(at=st.integers(0, 2))
    def host_dies(self, at: int) -> None:
        name = self.alive()[at % len(self.alive())]
        self.world.kill(name)
        self.world.members()
        self.open = []
        self.puts = [one for one in self.puts if one[0] != name]

    @rule(with_disk=st.booleans())
    def host_comes_back(self, with_disk: bool) -> None:
        dead = [name for name, host in self.world.hosts.items() if not host.alive]
        if dead:
            labels = self.world.hosts[dead[0]].labels if with_disk else {}
            self.world.start(dead[0], labels=dict(labels))
            self.world.members()

    @invariant()
    def what_is_held_is_right(self) -> None:
        for name, ask, space, numbers in self.open:
            for place, value in self.world.reader(name).ready.get(ask, {}).items():
                if value is not None:
                    tag = tag_of(space, key_of(numbers[place]))
                    assert self.world.content(value) == tag == value.check

    @invariant()
    def sums_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.next_end.clear()
        self.world.run(15_000, step=100)
        for name, put, count in self.puts:
            assert 0 <= self.world.reader(name).stored[put] <= count, "a put hangs"
        for name in self.alive():
            stats = self.world.hosts[name].machine.pooling.stats()
            assert stats is not None
            assert stats.dram.held == stats.dram.reserved == 0, "something is held for ever"
            assert stats.disk is not None
            assert stats.disk.held == stats.disk.reserved == 0
        self.world.check()


class AdaptivePoolMachine(PoolMachine):
    policy = "adaptive"


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPool = PoolMachine.TestCase
TestPool.settings = SETTINGS
TestAdaptivePool = AdaptivePoolMachine.TestCase
TestAdaptivePool.settings = SETTINGS
