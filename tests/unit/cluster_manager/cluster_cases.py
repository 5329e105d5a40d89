"""A cluster manager whose agents and fronts are the test."""

from collections.abc import Mapping

from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.messages.effects import Effect, Send
from tercet.messages.events import (
    ClusterManagerEvent,
    PeerGone,
    PeerJoined,
    Received,
    TargetsSet,
    Woke,
)
from tercet.messages.kv import Host
from tercet.messages.plan import StepCost
from tercet.messages.wire import (
    AgentReport,
    ChangeRole,
    ExecutorGone,
    ExecutorReady,
    Members,
    Message,
    Role,
    StartExecutor,
    StopExecutor,
)

SECOND = 1_000_000_000
AGENT = "agent/local"
COST = StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0)


def ready(executor: int, model: str = "m", role: Role = Role.COLOCATED) -> ExecutorReady:
    return ExecutorReady(
        executor=ExecutorId(executor),
        epoch=Epoch(10),
        pid=1,
        role=role,
        model=model,
        cost=COST,
        num_blocks=64,
        context_max=4096,
    )


class Cluster:
    """The machine, with short words for what happens to it; `check()` after every event."""

    def __init__(
        self,
        count: int = 2,
        *,
        roles: Mapping[Role, int] | None = None,
        weights: str = "",
        **settings: float,
    ) -> None:
        config = ClusterManagerConfig(**settings)  # type: ignore[arg-type]
        counts = roles or {Role.COLOCATED: count}
        groups = tuple(GroupConfig(model="m", role=role, count=n) for role, n in counts.items())
        self.machine = ClusterManager(config, groups=groups, weights=weights)
        self.now = 100 * SECOND

    def on(self, event: ClusterManagerEvent) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.machine.check()
        return effects

    def join(self, peer: str = AGENT, epoch: int = 1) -> list[Effect]:
        return self.on(PeerJoined(peer=Address(peer), epoch=Epoch(epoch)))

    def gone(self, peer: str = AGENT, epoch: int = 1) -> list[Effect]:
        return self.on(PeerGone(peer=Address(peer), epoch=Epoch(epoch)))

    def say(self, message: Message, sender: str = AGENT, epoch: int = 1) -> list[Effect]:
        return self.on(Received(sender=Address(sender), epoch=Epoch(epoch), message=message))

    def report(
        self,
        *executors: int,
        starting: tuple[int, ...] = (),
        next_executor: int = 0,
        sender: str = AGENT,
        epoch: int = 1,
        host: Host | None = None,
    ) -> list[Effect]:
        message = AgentReport(
            agent=Address(sender),
            starting=tuple(map(ExecutorId, starting)),
            ready=tuple(map(ready, executors)),
            next_executor=next_executor,
            host=host,
        )
        return self.say(message, sender, epoch)

    def ready(
        self, executor: int, sender: str = AGENT, role: Role = Role.COLOCATED
    ) -> list[Effect]:
        return self.say(ready(executor, role=role), sender)

    def want(self, **counts: int) -> list[Effect]:
        named = tuple((Role(name), count) for name, count in counts.items())
        return self.on(TargetsSet(model="m", counts=named))

    def lose(self, executor: int, reason: str = "signal 9") -> list[Effect]:
        return self.say(ExecutorGone(executor=ExecutorId(executor), reason=reason))

    def tick(self, seconds: float = 1.0) -> list[Effect]:
        self.now += int(seconds * SECOND)
        return self.on(Woke(key="tick"))


def starts(effects: list[Effect]) -> list[tuple[str, int]]:
    return [
        (e.to, e.message.executor)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, StartExecutor)
    ]


def stops(effects: list[Effect]) -> list[tuple[str, int]]:
    return [
        (e.to, e.message.executor)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, StopExecutor)
    ]


def changes(effects: list[Effect]) -> list[tuple[str, int, Role]]:
    return [
        (e.to, e.message.executor, e.message.role)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, ChangeRole)
    ]


def told(effects: list[Effect]) -> dict[str, Members]:
    """The list that each peer was told last."""
    return {
        e.to: e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Members)
    }


def lists(effects: list[Effect]) -> list[tuple[str, list[int], bool]]:
    """What fronts were told."""
    return [
        (e.to, [one.executor for one in e.message.executors], e.message.settled)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Members) and e.to.startswith("front/")
    ]
