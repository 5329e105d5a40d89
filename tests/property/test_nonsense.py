"""Whatever a peer says about blocks and values, no machine contradicts itself, and none stops.

A peer that knows the secret may be broken; it must not take others with it.
"""

import random
import struct
from collections import deque
from operator import attrgetter

import pytest
from executor_harness import task
from nonsense import Nonsense
from peer_world import AGENT, FRONT, World
from pool_world import ONE, PAGE, PoolWorld, key_of

from tercet.base.ids import Address, Epoch
from tercet.messages import images, kv
from tercet.messages.effects import Effect, Sum
from tercet.messages.events import Moved, MoveEnd, Received
from tercet.messages.images import OpenImage, SealImage
from tercet.messages.wire import Role
from tercet.pool.config import PoolConfig

KINDS = [*kv.KvMessage.__args__, *images.ImageMessage.__args__]
PARTS = [attrgetter(name) for name in ("source", "target", "part_bytes")]
PEERS = ["executor/a", "executor/b", "agent/a", "agent/b", "agent/c"]
EXECUTORS = ["executor/1", "executor/2", "executor/3"]
PROMPTS = [[1, 2] * 20, [1, 2] * 40, [3, 2] * 30]
MEMORIES = ["local/kv/1", "local/kv/2", "a/kv/0", "a/dram/0", "a/disk/0", "b/image/k"]


def i4(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


@pytest.mark.parametrize("seed", range(40))
def test_executors_bear_whatever_others_say(seed: int) -> None:
    rand = random.Random(seed)
    way = rand.choice(["reference", "layer", "request", "auto"])
    house = World({1: Role.PREFILL, 2: Role.DECODE, 3: Role.COLOCATED}, way=way, pool=seed % 2)
    lumps = [i4(*range(5)), i4(1), i4(-1), i4(*PROMPTS[1]), b"k" * 16, b""]
    words = [*EXECUTORS, *MEMORIES, FRONT, AGENT, "weights", "d", "ss"]
    draw = Nonsense(seed, words=words, lumps=lumps)
    for number, prompt in enumerate(PROMPTS, 1):
        prefill = rand.choice(["executor/1", None])
        house.submit(task(number, prompt, new=6), rand.choice(EXECUTORS[1:]), prefill=prefill)
    for _ in range(60):
        chance = rand.random()
        said = [mail for mail in house.queue if mail[1] in EXECUTORS and mail[0] != mail[1]]
        if chance < 0.4:
            sender, to = rand.choice([*EXECUTORS, AGENT]), rand.choice(EXECUTORS)
            message = draw.record(rand.choice(KINDS))
            if said and chance < 0.3:
                sender, to, sound = rand.choice(said)
                message = draw.changed(sound)
            house.on(to, Received(sender=sender, epoch=1, message=message))
        elif chance < 0.9 and house.queue:
            house.deliver()
        else:
            house.happen()
    house.pass_time(60 * 10**9)


class Agents(PoolWorld):
    """Hosts whose wires refuse what makes no sense, as real ones do."""

    def _carry_out(self, host, effect: Effect) -> None:
        if not isinstance(effect, Sum | OpenImage | SealImage):
            super()._carry_out(host, effect)

    def deliver(self) -> bool:
        mail = [item for item in self.mail if item[1] in {"agent/a", "agent/b"}]
        self.mail = deque(mail)
        return super().deliver()

    def move(self, host) -> bool:
        if not host.moves:
            return False
        source, target, part = (get(host.moves[0]) for get in PARTS)
        assert target.length % part == 0, "parts straddle what is ours"
        if source.size == target.size and source.length % part == 0 and len(source.units) % 4 == 0:
            return super().move(host)
        gone = Moved(ticket=host.moves.popleft().ticket, end=MoveEnd.GONE)
        self.on(host, gone)
        return True


@pytest.mark.parametrize("seed", range(40))
def test_agents_bear_whatever_others_say(seed: int) -> None:
    rand = random.Random(seed)
    disk = {"disk_path": "x", "disk_bytes": 64 * PAGE} if seed % 2 else {}
    hosts = Agents(PoolConfig(dram_bytes=16 * PAGE, **disk), ("a", "b"))
    lumps = [key_of(1), key_of(1) + key_of(2), ONE, b"k" * 15, b"\1"]
    draw = Nonsense(seed, words=[*PEERS, *MEMORIES, "n", "k"], lumps=lumps)
    for _ in range(80):
        chance, name = rand.random(), rand.choice("ab")
        if chance < 0.2:
            hosts.put(name, list(range(rand.choice([1, 2, 4]))))
        elif chance < 0.3:
            hosts.find(name, list(range(rand.choice([1, 2, 4]))))
        elif chance < 0.6:
            sender, to, message = (
                rand.choice(PEERS),
                f"agent/{name}",
                draw.record(rand.choice(KINDS)),
            )
            said = [mail for mail in hosts.mail if mail[1] in {"agent/a", "agent/b"}]
            if said and chance < 0.5:
                sender, to, sound = rand.choice(said)
                message = draw.changed(sound)
            event = Received(sender=Address(sender), epoch=Epoch(1), message=message)
            hosts.on(hosts.hosts[to.removeprefix("agent/")], event)
        elif chance < 0.8:
            hosts.deliver()
        elif chance < 0.95:
            hosts.move(hosts.hosts[name])
        else:
            hosts.wait(rand.choice([10, 250, 3000]))
    hosts.run(500)
    hosts.check()
