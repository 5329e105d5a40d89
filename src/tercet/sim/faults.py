"""What goes wrong, when: each fault of a scenario as actions on the timeline."""

import math
from collections.abc import Callable

from tercet.base.rand import Rand
from tercet.messages.wire import Role
from tercet.sim.cluster import Cluster
from tercet.sim.host import executor_of
from tercet.sim.node import Node
from tercet.sim.scenario import FaultSpec
from tercet.sim.timeline import MS, Timeline


class Faults:
    """Injects the faults of a scenario until told to stop; counts what it did."""

    def __init__(self, timeline: Timeline, cluster: Cluster, rand: Rand) -> None:
        self._timeline = timeline
        self._cluster = cluster
        self._rand = rand
        self._over = False
        self.done: dict[str, int] = {}
        self._acts: dict[str, Callable[[FaultSpec], bool]] = {
            "kill_executor": self._kill_executor,
            "hang_executor": self._hang_executor,
            "slow_executor": self._slow_executor,
            "kill_agent": self._kill_agent,
            "kill_front": self._kill_front,
            "partition": self._partition,
            "clock_step": self._clock_step,
            "lose": self._lose,
            "double": self._double,
            "partition_hosts": self._partition_hosts,
            "kill_host": self._kill_host,
            "slow_link": self._slow_link,
            "corrupt": self._corrupt,
            "disk_full": self._disk_full,
            "change_roles": self._change_roles,
        }

    def start(self, specs: tuple[FaultSpec, ...]) -> None:
        """Begin with every fault of the scenario."""
        for spec in specs:
            if spec.kind == "poison":
                self._cluster.clients.add_poison(spec.jobs)
                self.done["poison"] = self.done.get("poison", 0) + spec.jobs
            elif spec.at_ms is not None:
                self._timeline.at(int(spec.at_ms * MS), lambda spec=spec: self._act(spec))  # type: ignore[misc]
            else:
                self._again(spec)

    def stop(self) -> None:
        """Let the cluster come to rest."""
        self._over = True

    def _again(self, spec: FaultSpec) -> None:
        mean = (spec.every_ms or 0.0) * MS
        delay = -mean * math.log(max(self._rand.unit(), 1e-12))

        def act() -> None:
            if not self._over:
                self._act(spec)
                self._again(spec)

        self._timeline.after(int(delay), act)

    def _act(self, spec: FaultSpec) -> None:
        if self._acts[spec.kind](spec):
            self.done[spec.kind] = self.done.get(spec.kind, 0) + 1

    def _any_executor(self) -> Node | None:
        alive = self._cluster.executors()
        return alive[self._rand.below(len(alive))] if alive else None

    def _kill_executor(self, _: FaultSpec) -> bool:
        node = self._any_executor()
        if node is None:
            return False
        self._cluster.kill_executor(node, "killed by signal 9")
        return True

    def _hang_executor(self, spec: FaultSpec) -> bool:
        """Stop the whole process for a while, or let its engine loop for ever."""
        node = self._any_executor()
        if node is None:
            return False
        if self._rand.chance(0.5):
            node.freeze(int(spec.for_ms * MS))
        else:
            self._cluster.ground.engines[executor_of(node)].stuck = True
        return True

    def _slow_executor(self, spec: FaultSpec) -> bool:
        node = self._any_executor()
        if node is None:
            return False
        host = self._cluster.ground.engines[executor_of(node)]
        host.slow_factor = spec.factor
        host.slow_until = self._timeline.now + int(spec.for_ms * MS)
        return True

    def _kill_agent(self, _: FaultSpec) -> bool:
        hosts = self._cluster.hosts
        hosts[self._rand.below(len(hosts)) if len(hosts) > 1 else 0].kill_agent()
        return True

    def _kill_front(self, _: FaultSpec) -> bool:
        self._cluster.kill_front(self._rand.below(self._cluster.spec.fronts))
        return True

    def _partition(self, spec: FaultSpec) -> bool:
        pairs = self._cluster.world.network.pairs()
        if not pairs:
            return False
        first, second = pairs[self._rand.below(len(pairs))]
        until = self._timeline.now + int(spec.for_ms * MS)
        self._cluster.world.network.cut(first, second, until)
        return True

    def _clock_step(self, spec: FaultSpec) -> bool:
        """The host was suspended: every clock of it jumps ahead."""
        for node in list(self._cluster.world.nodes.values()):
            node.jump(int(spec.for_ms * MS))
        self._cluster.ground.clock_ahead += int(spec.for_ms * MS)
        return True

    def _lose(self, spec: FaultSpec) -> bool:
        self._cluster.world.network.lose(spec.share, self._until(spec))
        return True

    def _double(self, spec: FaultSpec) -> bool:
        self._cluster.world.network.double(spec.share, self._until(spec))
        return True

    def _partition_hosts(self, spec: FaultSpec) -> bool:
        """Two hosts do not hear each other; each hears all others."""
        pair = self._two_hosts()
        if pair is None:
            return False
        one, other = pair
        self._cluster.world.network.cut_hosts(one, other, self._until(spec))
        for wire in self._cluster.planes.pair(one, other):
            wire.cut(self._until(spec))
        return True

    def _kill_host(self, spec: FaultSpec) -> bool:
        """Any but the one with the fronts: its disk is all that comes back."""
        rest = [host for host in self._cluster.hosts[1:] if not host.down]
        if not rest:
            return False
        rest[self._rand.below(len(rest))].die(int(spec.for_ms * MS))
        return True

    def _slow_link(self, spec: FaultSpec) -> bool:
        link = self._cluster.planes.any(self._rand)
        if link is None:
            return False
        link.slow_down(spec.factor, int(spec.for_ms * MS))
        return True

    def _corrupt(self, _: FaultSpec) -> bool:
        """Flip bits on a wire between hosts, or where a pool keeps values."""
        ground = self._cluster.ground
        pools = [one for one in ground.memories.all() if one.pooled and one.used]
        at_rest = pools and (len(self._cluster.hosts) == 1 or self._rand.chance(0.5))
        if at_rest:
            memory = pools[self._rand.below(len(pools))]
            memory.flip(self._rand.below(memory.used), self._rand.below(63))
        elif len(self._cluster.hosts) > 1:
            ground.mover.corrupt_next()
        return bool(at_rest) or len(self._cluster.hosts) > 1

    def _disk_full(self, spec: FaultSpec) -> bool:
        """It takes nothing for a while; what is on it can be read."""
        hosts = self._cluster.hosts
        host = hosts[self._rand.below(len(hosts))]
        self._cluster.planes.writes(f"{host.name}/disk/0").refuse(int(spec.for_ms * MS))
        return True

    def _change_roles(self, _: FaultSpec) -> bool:
        """Somebody wants another split of the same number of executors."""
        spec = self._cluster.spec
        total = spec.prefill + spec.decode
        if total < 2:
            return False
        prefill = 1 + self._rand.below(total - 1)
        counts = ((Role.PREFILL, prefill), (Role.DECODE, total - prefill))
        return self._cluster.set_targets(counts)

    def _two_hosts(self) -> tuple[str, str] | None:
        names = [host.name for host in self._cluster.hosts]
        if len(names) < 2:
            return None
        one = self._rand.below(len(names))
        other = (one + 1 + self._rand.below(len(names) - 1)) % len(names)
        return names[one], names[other]

    def _until(self, spec: FaultSpec) -> int:
        return self._timeline.now + int(spec.for_ms * MS)
