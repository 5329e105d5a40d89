"""A node agent whose driver is the test."""

from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.messages.effects import Effect, Send
from tercet.messages.events import NodeAgentEvent, ProgressSeen, Received, Spawned
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady, Message, Role, StartExecutor, StopExecutor
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent

SECOND = 1_000_000_000
COST = StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0)


def ready(executor: int) -> ExecutorReady:
    return ExecutorReady(
        executor=ExecutorId(executor),
        epoch=Epoch(10),
        pid=1,
        role=Role.COLOCATED,
        model="m",
        cost=COST,
        num_blocks=64,
        context_max=4096,
        phases_ns=(("TE-Load", 5 * SECOND),),
    )


class Host:
    """The machine, with short words for what happens to it; `check()` after every event."""

    def __init__(self, config: NodeAgentConfig | None = None) -> None:
        self.machine = NodeAgent(config or NodeAgentConfig(), address=Address("agent/local"))
        self.now = 100 * SECOND

    def on(self, event: NodeAgentEvent) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.machine.check()
        return effects

    def cluster(self, message: Message) -> list[Effect]:
        return self.on(Received(sender=Address("cluster"), epoch=Epoch(1), message=message))

    def start(self, executor: int) -> list[Effect]:
        return self.cluster(
            StartExecutor(executor=ExecutorId(executor), role=Role.COLOCATED, model="m")
        )

    def stop(self, executor: int) -> list[Effect]:
        return self.cluster(StopExecutor(executor=ExecutorId(executor), reason="not wanted"))

    def spawned(self, executor: int) -> list[Effect]:
        return self.on(Spawned(executor=ExecutorId(executor), pid=1000 + executor))

    def ready(self, executor: int, sender: str = "") -> list[Effect]:
        address = Address(sender or f"executor/{executor}")
        return self.on(Received(sender=address, epoch=Epoch(10), message=ready(executor)))

    def serving(self, executor: int) -> None:
        self.start(executor)
        self.spawned(executor)
        self.ready(executor)

    def sample(self, executor: int = 0, **seen: int) -> list[Effect]:
        return self.on(sample(executor, **seen))

    def state(self, executor: int) -> str | None:
        states = dict(self.machine.executors)
        found = states.get(ExecutorId(executor))
        return None if found is None else found.value


def sample(executor: int = 0, **seen: int) -> ProgressSeen:
    values = {"steps": 0, "step_started": 0, "step_predicted_ns": 0, "loop_beat": 0, **seen}
    has_work = bool(values.pop("has_work", 0))
    return ProgressSeen(executor=ExecutorId(executor), has_work=has_work, **values)


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def told(effects: list[Effect]) -> list[Message]:
    return [e.message for e in effects if isinstance(e, Send) and e.to == "cluster"]
