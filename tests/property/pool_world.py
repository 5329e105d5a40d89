"""Hosts with shares of the pool whose drivers are the test: bytes are tags, moves copy tags."""

from array import array
from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b

from tercet.base.ids import Address, Epoch
from tercet.messages.effects import Effect, Fact, Move, Send, Wake
from tercet.messages.events import Moved, MoveEnd, PeerGone, Received, SlabScanned, Woke
from tercet.messages.kv import (
    Host,
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolValue,
    PoolWant,
    Strip,
)
from tercet.messages.wire import Members, Message
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.pool.config import PoolConfig

MS = 1_000_000
PAGE = 4096
ONE = array("i", [0]).tobytes()
CLUSTER = Address("cluster")


def key_of(number: int) -> bytes:
    return blake2b(b"key %d" % number, digest_size=16).digest()


def tag_of(namespace: str, key: bytes) -> int:
    """The content that belongs to a key, and its checksum."""
    return int.from_bytes(blake2b(namespace.encode() + key, digest_size=6).digest(), "little")


def strip(memory: str, start: int, size: int) -> Strip:
    return Strip(memory=memory, start=start, stride=size, length=size, units=ONE)


def is_of_disk(move: Move) -> bool:
    return "/disk/" in move.source.memory or "/disk/" in move.target.memory


@dataclass
class Reader:
    """An executor that asks its agent; it remembers what it was told."""

    address: Address
    found: dict[int, PoolFound] = field(default_factory=dict)
    ready: dict[int, dict[int, PoolValue | None]] = field(default_factory=dict)
    stored: dict[int, int] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        match message:
            case PoolFound():
                assert message.ask not in self.found, "answered twice"
                self.found[message.ask] = message
            case PoolReady():
                got = self.ready.setdefault(message.ask, {})
                for place, value in enumerate(message.values, message.first):
                    assert place not in got, "told twice of one value"
                    got[place] = value
            case PoolStored():
                assert message.put not in self.stored, "answered twice"
                self.stored[message.put] = message.stored
            case _:
                raise AssertionError(message)


@dataclass
class FakeHost:
    name: str
    machine: NodeAgent
    labels: dict[int, bytes] = field(default_factory=dict)
    wakes: dict[str, int] = field(default_factory=dict)
    moves: deque[Move] = field(default_factory=deque)
    stuck: deque[Move] = field(default_factory=deque)
    """What a disk that hangs does not end."""
    alive: bool = True


class PoolWorld:
    """Some hosts, an executor on each; time passes when it is told to."""

    def __init__(self, config: PoolConfig, names: tuple[str, ...] = ("a",)) -> None:
        self.config = config
        self.now = 1000 * MS
        self.bytes: dict[tuple[str, int], int] = {}
        self.facts: list[Fact] = []
        self.mail: deque[tuple[Address, Address, Message]] = deque()
        self.hosts: dict[str, FakeHost] = {}
        self.readers: dict[Address, Reader] = {}
        self.next_end: deque[MoveEnd] = deque()
        """How the next moves end; DONE if it says nothing."""
        self.disks_hang = False
        self.asks = 0
        for name in names:
            self.start(name)
        self.members()

    # hosts

    def start(self, name: str, *, labels: dict[int, bytes] | None = None) -> FakeHost:
        address = Address(f"agent/{name}")
        machine = NodeAgent(NodeAgentConfig(), address=address, pool=self.config)
        host = self.hosts[name] = FakeHost(name, machine, labels=labels or {})
        self.readers[Address(f"executor/{name}")] = Reader(Address(f"executor/{name}"))
        found = b"".join(host.labels.values())
        memory = f"{name}/disk/0"
        self.on(
            host, SlabScanned(memory=memory, labels=found[: len(found) // 256 * 128], last=False)
        )
        self.on(
            host, SlabScanned(memory=memory, labels=found[len(found) // 256 * 128 :], last=True)
        )
        return host

    def members(self) -> None:
        hosts = tuple(
            Host(name=name, agent=Address(f"agent/{name}"), pooled=True)
            for name, host in self.hosts.items()
            if host.alive
        )
        said = Members(version=1, executors=(), settled=True, hosts=hosts)
        for host in list(self.hosts.values()):
            if host.alive:
                self.on(host, Received(sender=CLUSTER, epoch=Epoch(1), message=said))

    def kill(self, name: str) -> None:
        """A host is gone with its memory; its disk is still there."""
        host = self.hosts[name]
        host.alive = False
        host.moves.clear()
        host.stuck.clear()
        for place in [place for place in self.bytes if place[0].startswith(f"{name}/dram")]:
            del self.bytes[place]
        for other in self.hosts.values():
            if other.alive:
                self.on(other, PeerGone(peer=Address(f"agent/{name}"), epoch=Epoch(1)))

    def leave(self, name: str) -> None:
        """The executor of a host dies."""
        gone = PeerGone(peer=Address(f"executor/{name}"), epoch=Epoch(1))
        self.on(self.hosts[name], gone)

    # driving

    def on(self, host: FakeHost, event: object) -> None:
        effects = host.machine.on(event, self.now)  # type: ignore[arg-type]
        host.machine.check()
        for effect in effects:
            self._carry_out(host, effect)

    def _carry_out(self, host: FakeHost, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=message):
                self.mail.append((Address(f"agent/{host.name}"), to, message))
            case Wake(at=at, key=key):
                host.wakes[key] = at
            case Move():
                assert effect.deadline > self.now
                hangs = self.disks_hang and is_of_disk(effect)
                (host.stuck if hangs else host.moves).append(effect)
            case Fact():
                self.facts.append(effect)
            case _:
                raise AssertionError(effect)

    def tell(self, name: str, message: Message) -> None:
        """The executor of a host says something to its agent."""
        sender = Address(f"executor/{name}")
        self.on(self.hosts[name], Received(sender=sender, epoch=Epoch(1), message=message))

    def deliver(self) -> bool:
        """Hand over one message."""
        if not self.mail:
            return False
        sender, to, message = self.mail.popleft()
        if to in self.readers:
            self.readers[to].take(message)
        elif to.startswith("agent/"):
            host = self.hosts[to.removeprefix("agent/")]
            if host.alive and self.hosts[sender.removeprefix("agent/")].alive:
                self.on(host, Received(sender=sender, epoch=Epoch(1), message=message))
        return True

    def let_go(self) -> None:
        """Disks hang no more: what they were asked for ends as everything does."""
        self.disks_hang = False
        for host in self.hosts.values():
            host.moves.extend(host.stuck)
            host.stuck.clear()

    def move(self, host: FakeHost) -> bool:
        """Carry out one move."""
        if not host.moves:
            return False
        move = host.moves.popleft()
        end = self.next_end.popleft() if self.next_end else MoveEnd.DONE
        source = self.bytes.get((move.source.memory, move.source.start))
        assert move.source.size == move.target.size
        if end is MoveEnd.DONE:
            if source is None:
                end = MoveEnd.GONE
            elif source != move.check:
                end = MoveEnd.CORRUPT
        target = (move.target.memory, move.target.start)
        assert move.target.memory.startswith(f"{host.name}/"), "it writes to memory of another"
        self.bytes[target] = source if end is MoveEnd.DONE and source is not None else -1
        if end is MoveEnd.DONE and move.label:
            host.labels[int.from_bytes(move.label[:8], "little")] = move.label
        wire = "disk" if is_of_disk(move) else "shared"
        self.on(host, Moved(ticket=move.ticket, end=end, size=move.source.size, wire=wire))
        return True

    def wait(self, ms: int) -> None:
        """Let time pass; timers that come due are told."""
        self.now += ms * MS
        for host in self.hosts.values():
            for key, at in list(host.wakes.items()):
                if host.alive and at <= self.now:
                    del host.wakes[key]
                    self.on(host, Woke(key=key))

    def settle(self) -> None:
        """Until nothing happens any more without time."""
        while self.deliver() or any(self.move(host) for host in self.hosts.values() if host.alive):
            pass

    def run(self, ms: int, step: int = 50) -> None:
        """Let everything happen, and time pass."""
        for _ in range(ms // step):
            self.settle()
            self.wait(step)
        self.settle()

    # what executors do

    def put(self, name: str, numbers: list[int], *, size: int = PAGE, namespace: str = "n") -> int:
        """Offer values of an executor's arena; gives the put's number."""
        self.asks += 1
        values = []
        keys = [key_of(number) for number in numbers]
        for number, key in zip(numbers, keys, strict=True):
            tag = tag_of(namespace, key)
            place = (f"{name}/kv/0", number * (1 << 24))
            self.bytes[place] = tag
            values.append(PoolValue(source=strip(*place, size), check=tag))
        put = PoolPut(
            put=self.asks,
            namespace=namespace,
            keys=b"".join(keys),
            values=tuple(values),
            part_bytes=PAGE // 2,
            reply=Address(f"executor/{name}"),
        )
        self.tell(name, put)
        return self.asks

    def find(self, name: str, numbers: list[int], *, namespace: str = "n") -> int:
        self.asks += 1
        find = PoolFind(
            ask=self.asks,
            namespace=namespace,
            keys=b"".join(key_of(number) for number in numbers),
            reply=Address(f"executor/{name}"),
        )
        self.tell(name, find)
        return self.asks

    def want(self, name: str, ask: int, count: int) -> None:
        self.tell(name, PoolWant(ask=ask, count=count))

    def done(self, name: str, ask: int, broken: tuple[int, ...] = ()) -> None:
        self.tell(name, PoolDone(ask=ask, broken=broken))

    def reader(self, name: str) -> Reader:
        return self.readers[Address(f"executor/{name}")]

    def tiers(self, name: str, numbers: list[int], *, namespace: str = "n") -> str:
        """Ask, and give the answer."""
        ask = self.find(name, numbers, namespace=namespace)
        self.settle()
        self.wait(250)
        self.settle()
        return self.reader(name).found[ask].tiers

    def read(self, name: str, numbers: list[int], *, namespace: str = "n") -> list[int | None]:
        """Ask for values and read them; gives their content."""
        ask = self.find(name, numbers, namespace=namespace)
        self.settle()
        count = len(self.reader(name).found[ask].tiers)
        if count:
            self.want(name, ask, count)
            self.run(3000)
        got = self.reader(name).ready.get(ask, {})
        assert sorted(got) == list(range(count)), "a value was never answered for"
        values = [got[place] for place in range(count)]
        read = [None if v is None else self.content(v) for v in values]
        self.done(name, ask)
        return read

    def content(self, value: PoolValue) -> int | None:
        return self.bytes.get((value.source.memory, value.source.start))

    def names(self, kind: str) -> int:
        """How many facts of a name there were."""
        return sum(fact.name == kind for fact in self.facts)

    def check(self) -> None:
        for host in self.hosts.values():
            if host.alive:
                host.machine.pooling.check_all()


def world(*names: str, pages: int = 64, disk: int = 0, **more: object) -> PoolWorld:
    """Hosts of these names (one, unless said), each with so many pages of memory and disk."""
    config = PoolConfig(
        dram_bytes=pages * PAGE,
        disk_path="x" if disk else None,
        disk_bytes=disk * PAGE,
        **more,  # type: ignore[arg-type]
    )
    return PoolWorld(config, names or ("a",))
