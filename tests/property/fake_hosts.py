"""A cluster manager, node agents and fake processes, joined by connections that may break."""

from collections import deque
from dataclasses import dataclass, field

from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.messages.effects import Effect, Forget, Kill, Send, Spawn, Wake
from tercet.messages.events import (
    Adopted,
    NodeAgentEvent,
    PeerGone,
    PeerJoined,
    ProcessExited,
    ProgressSeen,
    Received,
    Spawned,
    SpawnFailed,
    TargetsSet,
    Woke,
)
from tercet.messages.plan import StepCost
from tercet.messages.wire import ChangeRole, ExecutorReady, Members, Message, Role
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.node_agent.states import ExecutorState

SECOND = 1_000_000_000
COST = StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0)
CLUSTER = Address("cluster")


@dataclass
class Process:
    """A fake executor: it lives, it may be ready, it may hang."""

    executor: ExecutorId
    spawned: bool = False
    ready: bool = False
    hung: bool = False
    killed: bool = False
    role: Role = Role.COLOCATED


@dataclass
class FakeHost:
    """One host: an agent and its processes, which outlive it."""

    name: str
    agent: NodeAgent
    config: NodeAgentConfig
    epoch: int = 1
    connected: bool = False
    to_agent: deque[Message] = field(default_factory=deque)
    to_cluster: deque[Message] = field(default_factory=deque)
    processes: dict[ExecutorId, Process] = field(default_factory=dict)
    wakes: dict[str, int] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        return Address(f"agent/{self.name}")


class Hosts:
    """Everything, with `check()` after every event; remembers every id that was ever spawned."""

    def __init__(
        self, config: ClusterManagerConfig, agent: NodeAgentConfig, names: str, *, count: int
    ) -> None:
        self.now = SECOND
        self.manager = ClusterManager(config, groups=(GroupConfig(model="m", count=count),))
        self.counts: dict[Role, int] = {Role.COLOCATED: count}
        """What is wanted."""
        self.hosts = [
            FakeHost(name, NodeAgent(agent, address=Address(f"agent/{name}")), agent)
            for name in names
        ]
        self.wakes: dict[str, int] = {}
        self.members: Members | None = None
        self.spawned: list[ExecutorId] = []
        self.answers: list[tuple[FakeHost, Process]] = []
        """Executors that have changed their role and will say so."""
        self.cluster(PeerJoined(peer=Address("front/0"), epoch=Epoch(1)))

    def cluster(self, event: Received | PeerJoined | PeerGone | Woke | TargetsSet) -> None:
        for effect in self.manager.on(event, self.now):
            match effect:
                case Send(to=to, message=Members() as members) if to == "front/0":
                    assert self.members is None or members.version >= self.members.version
                    self.members = members
                case Send(to=to, message=message):
                    for host in self.hosts:
                        if host.address == to and host.connected:
                            host.to_agent.append(message)
                case Wake(key=key, at=at):
                    self.wakes[key] = at
        self.manager.check()

    def agent(self, host: FakeHost, event: NodeAgentEvent) -> None:
        effects: list[Effect] = host.agent.on(event, self.now)
        host.agent.check()
        for effect in effects:
            match effect:
                case Send(message=ChangeRole(executor=executor, role=role)):
                    self.recast(host, executor, role)
                case Send(message=message):
                    if host.connected:
                        host.to_cluster.append(message)
                case Spawn(executor=executor, role=role):
                    assert executor not in self.spawned, f"{executor} was spawned twice"
                    self.spawned.append(executor)
                    host.processes[executor] = Process(executor, role=role)
                case Kill(executor=executor):
                    if executor in host.processes:
                        host.processes[executor].killed = True
                case Forget(executor=executor):
                    assert executor not in host.processes, "memory was taken from a living process"
                case Wake(key=key, at=at):
                    host.wakes[key] = at

    def want(self, counts: dict[Role, int]) -> None:
        self.counts.update(counts)
        self.cluster(TargetsSet(model="m", counts=tuple(counts.items())))

    def recast(self, host: FakeHost, executor: ExecutorId, role: Role) -> None:
        """An executor hears its new role from its agent; one that hangs hears nothing."""
        process = host.processes.get(executor)
        if process is not None and process.ready and not process.hung and not process.killed:
            process.role = role
            self.answers.append((host, process))

    def connect(self, host: FakeHost) -> None:
        if host.connected:
            self.disconnect(host)
        host.connected = True
        self.cluster(PeerJoined(peer=host.address, epoch=Epoch(host.epoch)))
        self.agent(host, PeerJoined(peer=CLUSTER, epoch=Epoch(1)))

    def disconnect(self, host: FakeHost) -> None:
        host.connected = False
        host.to_agent.clear()
        host.to_cluster.clear()
        self.cluster(PeerGone(peer=host.address, epoch=Epoch(host.epoch)))
        self.agent(host, PeerGone(peer=CLUSTER, epoch=Epoch(1)))

    def restart_agent(self, host: FakeHost) -> None:
        """The agent dies alone; what was only being spawned dies with it."""
        if host.connected:
            host.connected = False
            host.to_agent.clear()
            host.to_cluster.clear()
            self.cluster(PeerGone(peer=host.address, epoch=Epoch(host.epoch)))
        host.epoch += 1
        host.wakes.clear()
        host.agent = NodeAgent(host.config, address=host.address)
        for process in list(host.processes.values()):
            if not process.spawned:
                del host.processes[process.executor]
            else:
                self.agent(host, Adopted(executor=process.executor, pid=1))
                if process.ready and not process.killed:
                    self.announce(host, process)

    def spawn(self, host: FakeHost, process: Process, *, well: bool) -> None:
        """The driver answers a `Spawn`."""
        if well:
            process.spawned = True
            self.agent(host, Spawned(executor=process.executor, pid=1))
        else:
            del host.processes[process.executor]
            self.agent(host, SpawnFailed(executor=process.executor, reason="no memory"))

    def announce(self, host: FakeHost, process: Process) -> None:
        process.ready = True
        message = ExecutorReady(
            executor=process.executor,
            epoch=Epoch(1),
            pid=1,
            role=process.role,
            model="m",
            cost=COST,
            num_blocks=1,
            context_max=1,
        )
        sender = Address(f"executor/{process.executor}")
        self.agent(host, Received(sender=sender, epoch=Epoch(1), message=message))

    def exit(self, host: FakeHost, process: Process) -> None:
        del host.processes[process.executor]
        self.agent(host, ProcessExited(executor=process.executor, reason="signal 9"))

    def deliver(self, host: FakeHost) -> bool:
        """Carry one message each way."""
        moved = False
        if host.to_agent:
            message = host.to_agent.popleft()
            self.agent(host, Received(sender=CLUSTER, epoch=Epoch(1), message=message))
            moved = True
        if host.to_cluster:
            message = host.to_cluster.popleft()
            event = Received(sender=host.address, epoch=Epoch(host.epoch), message=message)
            self.cluster(event)
            moved = True
        return moved

    def pass_time(self, seconds: int) -> None:
        """Let time go by in tenths, with samples of all processes and every due timer."""
        for _ in range(seconds * 10):
            self.now += SECOND // 10
            for host in self.hosts:
                for process in host.processes.values():
                    if process.spawned:
                        beat = 1 if process.hung else self.now
                        self.agent(host, _sample(process.executor, beat))
                for key in [key for key, at in host.wakes.items() if at <= self.now]:
                    del host.wakes[key]
                    self.agent(host, Woke(key=key))
            for key in [key for key, at in self.wakes.items() if at <= self.now]:
                del self.wakes[key]
                self.cluster(Woke(key=key))

    def settle(self) -> None:
        """From now on everything works: processes start and register, the killed exit."""
        for host in self.hosts:
            if not host.connected:
                self.connect(host)
        for _ in range(60):
            self.progress()
            self.pass_time(1)

    def progress(self) -> None:
        """Carry every message, and let every process do what it is about to do."""
        self.say_roles()
        for host in self.hosts:
            while self.deliver(host):
                pass
            for process in list(host.processes.values()):
                if process.killed and process.spawned:
                    self.exit(host, process)
                elif not process.spawned:
                    self.spawn(host, process, well=True)
                elif not process.ready and not process.hung:
                    self.announce(host, process)

    def say_roles(self) -> None:
        answers, self.answers = self.answers, []
        for host, process in answers:
            if host.processes.get(process.executor) is process and not process.killed:
                self.announce(host, process)

    def serving(self) -> list[int]:
        """Processes that live, and that their agents hold for ready."""
        return sorted(
            number
            for host in self.hosts
            for number, state in host.agent.executors
            if state is ExecutorState.READY and number in host.processes
        )


def _sample(executor: ExecutorId, beat: int) -> ProgressSeen:
    return ProgressSeen(
        executor=executor,
        steps=0,
        step_started=0,
        step_predicted_ns=0,
        has_work=False,
        loop_beat=beat,
    )
