"""A simulated cluster: who exists, who dies, who is started again, as supervisor and zygote do it.

front/0 (with the cluster manager), front/1 ...     agent/local      executor/1 ...
    └────────────── links: executor-front, executor-agent, agent-cluster ──────────┘
"""

from collections.abc import Callable

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId, Ids
from tercet.base.model import ModelShape
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.messages.effects import Effect, Emit, Forget, Kill, RunStep, Send, Spawn
from tercet.messages.events import Adopted, PeerJoined, ProcessExited, Spawned
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady, Role
from tercet.models.spec import parse_cost
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.scheduling.config import SchedulingConfig
from tercet.sim.clients import Clients
from tercet.sim.engine_host import EngineHost
from tercet.sim.node import AnyMachine, Node, World
from tercet.sim.scenario import ClusterSpec
from tercet.sim.timeline import MS
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor

AGENT = Address("agent/local")
CLUSTER = Address("cluster")
MODEL = "cost"
SAMPLE_NS = 100 * MS
RESTART_NS = 200 * MS


class Cluster:
    """Builds the nodes, carries out the effects that reach beyond a machine, restarts the dead."""

    def __init__(self, world: World, spec: ClusterSpec, *, clients: Clients, rand: Rand) -> None:
        self.world = world
        self.spec = spec
        self.shape: ModelShape = parse_cost(f"cost:tiny?context={spec.context_max}")
        self.cost = StepCost(
            base_ns=spec.base_us * 1000,
            per_row_ns=spec.row_us * 1000,
            per_logit_ns=spec.logit_us * 1000,
            per_pair_ns=spec.pair_us * 1000,
        )
        self.clients = clients
        self.hosts: dict[ExecutorId, EngineHost] = {}
        self.ids: dict[Address, Ids] = {}
        self.num_started = 0
        self.clock_ahead = 0
        """How far the host's clocks ran ahead of virtual time so far: new processes inherit it."""
        self._rand = rand
        self._epoch = 0
        self._processes: dict[ExecutorId, Node] = {}
        """Living executor processes, as the supervisor knows them: they survive their agent."""
        clients.front_of = world.nodes.get

    # the processes that the supervisor starts

    def start(self) -> None:
        """Start everything, as a supervisor does."""
        for number in range(self.spec.fronts):
            self.start_front(number)
        self.start_agent()

    def start_front(self, number: int) -> None:
        address, epoch = Address(f"front/{number}"), self._next_epoch()
        config = JobExecutorConfig(
            max_queued_jobs=self.spec.max_queued_jobs,
            # What all fronts together may give an executor fits its queue.
            max_tasks_per_executor=max(1, self.spec.max_waiting_tasks // self.spec.fronts),
        )
        machine = JobExecutor(config, address=address, rand=Rand(epoch, "seeds"))
        self.ids[address] = Ids(epoch)
        front = Node(
            self.world, address, machine, epoch=epoch, carry_out=self._front_effect(address)
        )
        if number == 0:
            self._start_cluster_manager(front)
        for node in list(self._processes.values()):
            self.world.network.connect(node, front)
        manager = self.world.nodes.get(CLUSTER)
        if number and manager is not None:
            self.world.network.connect(front, manager)

    def kill_front(self, number: int) -> None:
        """Kill a front; its clients see their connections close, and it is started again."""
        front = self.world.nodes.get(Address(f"front/{number}"))
        if front is None:
            return
        front.die()
        manager = self.world.nodes.get(CLUSTER)
        if number == 0 and manager is not None:
            manager.die()
        self.clients.front_died(front.address)
        self.world.timeline.after(RESTART_NS, lambda: self.start_front(number))

    def start_agent(self) -> None:
        config = NodeAgentConfig(progress_floor_s=self.spec.step_floor_ms / 1000)
        machine = NodeAgent(config, address=AGENT)
        agent = self._node(AGENT, machine, self._next_epoch(), self._agent_effect)
        for executor, node in list(self._processes.items()):
            agent.deliver(Adopted(executor=executor, pid=executor))
            self.world.network.connect(node, agent)
        manager = self.world.nodes.get(CLUSTER)
        if manager is not None:
            self.world.network.connect(agent, manager)
        self._sample(agent)

    def kill_agent(self) -> None:
        """Kill the node agent; the supervisor starts another, which adopts what lives."""
        agent = self.world.nodes.get(AGENT)
        if agent is not None:
            agent.die()
            self.world.timeline.after(RESTART_NS, self.start_agent)

    # executors

    def executors(self) -> list[Node]:
        """Living executor processes, oldest first."""
        return list(self._processes.values())

    def kill_executor(self, node: Node, reason: str) -> None:
        """End an executor process; its agent hears of it, if there is one."""
        executor = executor_of(node)
        if self._processes.get(executor) is not node:
            return
        del self._processes[executor]
        node.die()
        agent = self.world.nodes.get(AGENT)
        if agent is not None:
            event = ProcessExited(executor=executor, reason=reason)
            self.world.timeline.after(MS, lambda: agent.deliver(event))

    def fronts(self) -> list[tuple[Node, Ids]]:
        """Living fronts."""
        pairs = [(self.world.nodes.get(address), ids) for address, ids in sorted(self.ids.items())]
        return [(node, ids) for node, ids in pairs if node is not None]

    def _start_cluster_manager(self, front: Node) -> None:
        group = GroupConfig(model=MODEL, count=self.spec.replicas)
        machine = ClusterManager(ClusterManagerConfig(tick_s=0.5), groups=(group,))
        manager = self._node(CLUSTER, machine, front.epoch, _ignore)
        front.deliver(PeerJoined(peer=CLUSTER, epoch=manager.epoch))
        manager.deliver(PeerJoined(peer=front.address, epoch=front.epoch))
        for address, node in list(self.world.nodes.items()):
            if address == AGENT or (address.startswith("front/") and node is not front):
                self.world.network.connect(node, manager)

    def _spawn(self, effect: Spawn) -> None:
        executor, agent = effect.executor, self.world.nodes[AGENT]
        must(executor not in self.hosts, f"executor {executor} is started twice")
        host = self.hosts[executor] = EngineHost(
            executor,
            spec=self.spec,
            shape=self.shape,
            cost=self.cost,
            poison=self.clients.poison,
        )
        node = self._executor_node(executor, host)
        host.on_poison = lambda: self.kill_executor(node, "killed by signal 11")
        self._processes[executor] = node
        self.num_started += 1
        agent.deliver(Spawned(executor=executor, pid=executor))
        delay = int(self.spec.start_ms * MS * (0.5 + self._rand.unit()))
        self.world.timeline.after(delay, lambda: self._ready(node))

    def _executor_node(self, executor: ExecutorId, host: EngineHost) -> Node:
        machine = TaskExecutor(
            TaskExecutorConfig(),
            executor=executor,
            capacity=Capacity(
                num_blocks=self.spec.blocks,
                context_max=self.spec.context_max,
                cost=self.cost,
                fingerprint="cost",
            ),
            scheduling=SchedulingConfig(
                max_slots=self.spec.slots, max_waiting=self.spec.max_waiting_tasks
            ),
        )

        def carry_out(effect: Effect) -> None:
            if isinstance(effect, RunStep):
                host.run(node, effect)

        address = Address(f"executor/{executor}")
        node = self._node(address, machine, self._next_epoch(), carry_out)
        node.before_turn = lambda event: self._register(node, event)
        return node

    def _ready(self, node: Node) -> None:
        """The model is loaded: dial the agent and the fronts."""
        if not node.alive:
            return
        agent = self.world.nodes.get(AGENT)
        if agent is not None:
            self.world.network.connect(node, agent)
        for front, _ in self.fronts():
            self.world.network.connect(node, front)

    def _register(self, node: Node, event: object) -> None:
        """Tell an agent that one can serve, as an executor's process does beside its machine."""
        if isinstance(event, PeerJoined) and event.peer == AGENT:
            ready = ExecutorReady(
                executor=executor_of(node),
                epoch=node.epoch,
                pid=executor_of(node),
                role=Role.COLOCATED,
                model=MODEL,
                cost=self.cost,
                num_blocks=self.spec.blocks,
                context_max=self.spec.context_max,
            )
            node.perform(Send(to=AGENT, message=ready, cause=node.address))

    def _sample(self, agent: Node) -> None:
        """Let the agent look at every executor's progress page, again and again."""
        if not agent.alive:
            return
        if not agent.frozen:
            for executor, node in list(self._processes.items()):
                host = self.hosts[executor]
                agent.deliver(host.progress(node, frozen_since=node.frozen_since))
        self.world.timeline.after(SAMPLE_NS, lambda: self._sample(agent))

    # effects

    def _front_effect(self, front: Address) -> Callable[[Effect], None]:
        def carry_out(effect: Effect) -> None:
            if isinstance(effect, Emit):
                self.clients.output(front, effect.output)

        return carry_out

    def _agent_effect(self, effect: Effect) -> None:
        if isinstance(effect, Spawn):
            self._spawn(effect)
        elif isinstance(effect, Kill):
            node = self._processes.get(effect.executor)
            if node is not None:
                self.kill_executor(node, effect.reason)
        elif isinstance(effect, Forget):
            self.hosts.pop(effect.executor, None)

    def _node(
        self,
        address: Address,
        machine: AnyMachine,
        epoch: Epoch,
        carry_out: Callable[[Effect], None],
    ) -> Node:
        node = Node(self.world, address, machine, epoch=epoch, carry_out=carry_out)
        node.clock_ahead = self.clock_ahead
        return node

    def _next_epoch(self) -> Epoch:
        self._epoch += 1
        return Epoch(self._epoch)


def executor_of(node: Node) -> ExecutorId:
    return ExecutorId(int(node.address.removeprefix("executor/")))


def _ignore(_: Effect) -> None:
    """Facts need no carrying out here."""
