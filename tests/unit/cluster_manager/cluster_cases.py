"""A cluster manager whose agents and fronts are the test."""

from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.messages.effects import Effect, Send
from tercet.messages.events import ClusterManagerEvent, PeerGone, PeerJoined, Received, Woke
from tercet.messages.plan import StepCost
from tercet.messages.wire import (
    AgentReport,
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


def ready(executor: int, model: str = "m") -> ExecutorReady:
    return ExecutorReady(
        executor=ExecutorId(executor),
        epoch=Epoch(10),
        pid=1,
        role=Role.COLOCATED,
        model=model,
        cost=COST,
        num_blocks=64,
        context_max=4096,
    )


class Cluster:
    """The machine, with short words for what happens to it; `check()` after every event."""

    def __init__(self, count: int = 2, **settings: float) -> None:
        config = ClusterManagerConfig(**settings)  # type: ignore[arg-type]
        self.machine = ClusterManager(config, groups=(GroupConfig(model="m", count=count),))
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
    ) -> list[Effect]:
        message = AgentReport(
            agent=Address(sender),
            starting=tuple(map(ExecutorId, starting)),
            ready=tuple(map(ready, executors)),
            next_executor=next_executor,
        )
        return self.say(message, sender, epoch)

    def ready(self, executor: int, sender: str = AGENT) -> list[Effect]:
        return self.say(ready(executor), sender)

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


def lists(effects: list[Effect]) -> list[tuple[str, list[int], bool]]:
    return [
        (e.to, [one.executor for one in e.message.executors], e.message.settled)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Members)
    ]
