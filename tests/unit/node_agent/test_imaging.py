"""Agents that load a model image from each other, over a made-up wire."""

from array import array
from collections import deque
from dataclasses import dataclass, field

import pytest

from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.effects import Effect, Move, Send, Spawn, Sum, Wake
from tercet.messages.events import (
    Moved,
    MoveEnd,
    NodeAgentEvent,
    PeerGone,
    PeerJoined,
    Received,
    Summed,
    Woke,
)
from tercet.messages.images import (
    ImageHeld,
    ImageOpened,
    ImageParts,
    ImageSealed,
    OpenImage,
    SealImage,
)
from tercet.messages.wire import ExecutorGone, Role, StartExecutor, StartWaits, StopExecutor
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.imaging import PATIENCE_NS, Imaging
from tercet.node_agent.machine import NodeAgent
from tercet.pool.images import BLOCK_BYTES, num_blocks

KEY = "ab12"
SIZE = 11 * BLOCK_BYTES + 5
EPOCH = Epoch(1)
CLUSTER = Address("cluster")


@dataclass
class Hosts:
    """Agents by name, the blocks that each one's memory holds, and everything under way."""

    agents: dict[str, NodeAgent] = field(default_factory=dict)
    blocks: dict[str, dict[int, str]] = field(default_factory=dict)
    todo: deque[tuple[str, NodeAgentEvent]] = field(default_factory=deque)
    spawned: dict[str, list[int]] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)
    wakes: dict[str, Wake] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    corrupt: dict[str, int] = field(default_factory=dict)
    """How many reads of a host still give other bytes."""
    now: int = 0

    def add(self, name: str, *, holds: bool = False) -> None:
        address = Address(f"agent/{name}")
        agent = NodeAgent(NodeAgentConfig(), address=address, image=KEY)
        self.blocks[name] = {}
        self.spawned[name], self.gone[name] = [], []
        for other in list(self.agents):
            self.put(other, PeerJoined(peer=address, epoch=EPOCH))
            self.put(name, PeerJoined(peer=Address(f"agent/{other}"), epoch=EPOCH))
        self.agents[name] = agent
        if holds:
            self.blocks[name] = {at: f"block {at}" for at in range(num_blocks(SIZE))}
            self.put(name, ImageHeld(key=KEY, size=SIZE))

    def put(self, name: str, event: NodeAgentEvent) -> None:
        self.todo.append((name, event))

    def start(self, name: str, executor: int) -> None:
        message = StartExecutor(executor=ExecutorId(executor), role=Role.COLOCATED, model="m")
        self.put(name, Received(sender=CLUSTER, epoch=EPOCH, message=message))

    def run(self, turns: int = 10_000) -> None:
        for _ in range(turns):
            if not self.todo:
                return
            name, event = self.todo.popleft()
            agent = self.agents.get(name)
            if agent is not None:
                for effect in agent.on(event, self.now):
                    self.carry_out(name, effect)
                agent.check()

    def later(self, duration: int) -> None:
        self.now += duration
        for name in list(self.wakes):
            self.put(name, Woke(key=self.wakes.pop(name).key))
        self.run()

    def die(self, name: str) -> None:
        del self.agents[name]
        for other in self.agents:
            self.put(other, PeerGone(peer=Address(f"agent/{name}"), epoch=EPOCH))

    def carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=message) if to.startswith("agent/"):
                sender = Address(f"agent/{name}")
                event = Received(sender=sender, epoch=EPOCH, message=message)
                self.put(to.removeprefix("agent/"), event)
            case Send(message=ExecutorGone(reason=reason)):
                self.gone[name].append(reason)
            case Sum(ticket=ticket, sources=sources):
                checks = tuple(1000 + one.start // BLOCK_BYTES for one in sources)
                self.put(name, Summed(ticket=ticket, checks=checks))
            case OpenImage(key=key):
                self.put(name, ImageOpened(key=key))
            case SealImage(key=key, drop=drop):
                whole = len(self.blocks[name]) == num_blocks(SIZE)
                if not drop:
                    self.put(name, ImageSealed(key=key, reason="" if whole else "not whole"))
            case Move():
                self.put(name, Moved(ticket=effect.ticket, end=self.copy(name, effect)))
            case Spawn(executor=executor):
                self.spawned[name].append(executor)
            case Wake(key="images"):
                self.wakes[name] = effect
            case _:
                pass

    def copy(self, name: str, move: Move) -> MoveEnd:
        source, block = move.source.memory.split("/")[0], move.source.start // BLOCK_BYTES
        assert move.target.memory == f"{name}/image/{KEY}"
        assert (move.source.start, move.source.length) == (move.target.start, move.target.length)
        assert move.check == 1000 + block
        if source not in self.agents:
            return MoveEnd.GONE
        if self.corrupt.get(source, 0):
            self.corrupt[source] -= 1
            return MoveEnd.CORRUPT
        assert block in self.blocks[source], f"{source} lends block {block}, which it has not"
        self.blocks[name][block] = self.blocks[source][block]
        self.read[source] = self.read.get(source, 0) + 1
        return MoveEnd.DONE


def test_a_host_without_the_image_loads_it_before_its_first_executor() -> None:
    hosts = Hosts()
    hosts.add("a", holds=True)
    hosts.add("b")
    hosts.start("a", 0)
    hosts.start("b", 1)
    hosts.run(2)
    hosts.run()
    assert hosts.spawned == {"a": [0], "b": [1]}
    assert hosts.blocks["b"] == hosts.blocks["a"]


def test_hosts_that_load_together_serve_each_other() -> None:
    hosts = Hosts()
    hosts.add("a", holds=True)
    for name in ("b", "c", "d", "e"):
        hosts.add(name)
        hosts.start(name, ord(name))
    hosts.run()
    hosts.later(300_000_000)
    assert all(hosts.spawned[name] for name in ("b", "c", "d", "e"))
    assert hosts.read["a"] < 4 * num_blocks(SIZE), "everything came from the first host"


@pytest.mark.parametrize("turns", range(1, 40, 3))
def test_a_source_that_dies_in_the_middle_is_replaced(turns: int) -> None:
    hosts = Hosts()
    hosts.add("a", holds=True)
    hosts.add("b", holds=True)
    hosts.add("c")
    hosts.start("c", 7)
    hosts.run(turns)
    hosts.die("a")
    hosts.run()
    hosts.later(300_000_000)
    assert hosts.spawned["c"] == [7]
    assert len(hosts.blocks["c"]) == num_blocks(SIZE)


def test_corrupt_blocks_are_loaded_again() -> None:
    hosts = Hosts(corrupt={"a": 2})
    hosts.add("a", holds=True)
    hosts.add("b", holds=True)
    hosts.add("c")
    hosts.start("c", 7)
    hosts.run()
    hosts.later(300_000_000)
    assert hosts.spawned["c"] == [7]


def test_an_image_that_nobody_has_fails_the_start_with_the_reason() -> None:
    hosts = Hosts()
    hosts.add("a")
    hosts.start("a", 3)
    hosts.run()
    for _ in range(5):
        hosts.later(PATIENCE_NS // 4)
    assert hosts.spawned["a"] == []
    assert hosts.gone["a"]
    assert "image did not come" in hosts.gone["a"][0]


def test_it_comes_late_and_still_serves() -> None:
    hosts = Hosts()
    hosts.add("a")
    hosts.start("a", 3)
    hosts.run()
    hosts.later(PATIENCE_NS // 4)
    hosts.add("b", holds=True)
    hosts.run()
    assert hosts.spawned["a"] == [3]


def test_an_executor_that_is_stopped_before_its_image_came_is_never_born() -> None:
    """A cluster manager that gives up on a start again and again asked for one executor at last."""
    hosts = Hosts()
    hosts.add("a")
    for executor in (1, 2, 3):
        hosts.start("a", executor)
        hosts.run()
        if executor < 3:
            stop = StopExecutor(executor=ExecutorId(executor), reason="it was not ready")
            hosts.put("a", Received(sender=CLUSTER, epoch=EPOCH, message=stop))
            hosts.run()
    assert len(hosts.gone["a"]) == 2
    hosts.add("b", holds=True)
    hosts.run()
    assert hosts.spawned["a"] == [3]


def test_while_an_image_comes_the_cluster_hears_that_a_start_waits_for_it() -> None:
    agent = NodeAgent(NodeAgentConfig(), address=Address("agent/a"), image=KEY)
    start = StartExecutor(executor=ExecutorId(1), role=Role.COLOCATED, model="m")
    effects = agent.on(Received(sender=CLUSTER, epoch=EPOCH, message=start), 0)
    look = next(one for one in effects if isinstance(one, Wake) and one.key.startswith("start"))
    effects = agent.on(Woke(key=look.key), look.at)
    waits = StartWaits(executor=ExecutorId(1))
    assert [one.message for one in effects if isinstance(one, Send)] == [waits]


def test_a_host_without_room_says_so_and_has_nothing_to_drop() -> None:
    hosts = Hosts()
    hosts.add("a")
    hosts.add("b", holds=True)
    effects: list[Effect] = []
    hosts.start("a", 1)
    agent = hosts.agents["a"]
    while hosts.todo:
        name, event = hosts.todo.popleft()
        if isinstance(event, ImageOpened):
            full = ImageOpened(key=KEY, reason="there is no room")
            effects = agent.on(full, hosts.now)
            break
        for effect in hosts.agents[name].on(event, hosts.now):
            hosts.carry_out(name, effect)
    assert not [one for one in effects if isinstance(one, SealImage)]
    (gone,) = [one.message for one in effects if isinstance(one, Send)]
    assert isinstance(gone, ExecutorGone)
    assert "there is no room" in gone.reason


def test_a_late_block_of_a_load_that_failed_is_none_of_the_next_load() -> None:
    """It went to the former memory; while it may still come, no new memory is opened."""
    numbers = iter(range(1, 99))
    images = Imaging("a", ticket=lambda: next(numbers))
    size, source = 2 * BLOCK_BYTES, Address("agent/c")

    def told(have: bytes, now: int) -> list[Effect]:
        out: list[Effect] = []
        checks = array("Q", [1, 1]).tobytes()
        parts = ImageParts(
            key=KEY,
            memory=f"c/image/{KEY}",
            size=size,
            block_bytes=BLOCK_BYTES,
            have=have,
            checks=checks,
        )
        images.heard(parts, source, now, out)
        return out

    def opened(now: int) -> list[Effect]:
        out: list[Effect] = []
        images.on(ImageOpened(key=KEY), now, out)
        return out

    images.joined(source, [])
    images.want(KEY, 0, [])
    told(b"\0\0", 0)
    opened(0)
    (late,) = [one for one in told(b"\1\0", PATIENCE_NS - 1) if isinstance(one, Move)]
    images.woke(PATIENCE_NS, [])
    assert [key for key, _ in images.finished] == [KEY]

    images.want(KEY, PATIENCE_NS, [])
    assert not told(b"\1\0", PATIENCE_NS)
    images.on(Moved(ticket=late.ticket, end=MoveEnd.DONE), PATIENCE_NS, [])
    assert [type(one) for one in told(b"\1\0", PATIENCE_NS)] == [OpenImage]
    (again,) = [one for one in opened(PATIENCE_NS) if isinstance(one, Move)]
    assert again.ticket != late.ticket
    images.on(Moved(ticket=again.ticket, end=MoveEnd.DONE), PATIENCE_NS, [])
    images.check()
