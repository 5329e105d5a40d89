"""What goes wrong, when: each fault of a scenario as actions on the timeline."""

import math
from collections.abc import Callable

from tercet.base.rand import Rand
from tercet.sim.cluster import Cluster, executor_of
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
            self._cluster.hosts[executor_of(node)].stuck = True
        return True

    def _slow_executor(self, spec: FaultSpec) -> bool:
        node = self._any_executor()
        if node is None:
            return False
        host = self._cluster.hosts[executor_of(node)]
        host.slow_factor = spec.factor
        host.slow_until = self._timeline.now + int(spec.for_ms * MS)
        return True

    def _kill_agent(self, _: FaultSpec) -> bool:
        self._cluster.kill_agent()
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
        self._cluster.clock_ahead += int(spec.for_ms * MS)
        return True
