"""A simulated cluster: fronts, cluster manager and hosts; who dies and who is started again.

front/0 (with the cluster manager), front/1 ...     agent/h0 ...     executor/0 ...
    └── links: executor-front, executor-agent, executor-cluster, agent-cluster, agent-agent,
        executor-executor where one prefills ──┘
"""

from collections.abc import Callable

from tercet.base.ids import Address, Ids
from tercet.base.model import ModelShape
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.messages.effects import Effect, Emit
from tercet.messages.events import PeerJoined, TargetsSet
from tercet.messages.plan import StepCost
from tercet.messages.wire import Role
from tercet.models.spec import parse_cost
from tercet.sim.clients import Clients
from tercet.sim.host import CLUSTER, MODEL, RESTART_NS, Ground, SimHost, executor_of
from tercet.sim.memories import Memories
from tercet.sim.moves import Mover
from tercet.sim.node import Node, World
from tercet.sim.planes import Planes
from tercet.sim.scenario import ClusterSpec, NetworkSpec

ONLY_HOST = "local"


class Cluster:
    """Builds the nodes, carries out the effects that reach beyond a machine, restarts the dead."""

    def __init__(
        self,
        world: World,
        spec: ClusterSpec,
        network: NetworkSpec,
        *,
        clients: Clients,
        rand: Rand,
    ) -> None:
        self.world = world
        self.spec = spec
        self.shape: ModelShape = parse_cost(f"cost:tiny?context={spec.context_max}")
        self.clients = clients
        self.planes = Planes(world.timeline, network)
        memories = Memories()
        self.ground = Ground(
            world=world,
            spec=spec,
            shape=self.shape,
            cost=StepCost(
                base_ns=spec.base_us * 1000,
                per_row_ns=spec.row_us * 1000,
                per_logit_ns=spec.logit_us * 1000,
                per_pair_ns=spec.pair_us * 1000,
            ),
            clients=clients,
            rand=rand,
            memories=memories,
            mover=Mover(
                world.timeline,
                memories,
                self.planes,
                rand=rand.stream("moves"),
                sender_of=lambda host: world.nodes.get(Address(f"agent/{host}")),
            ),
        )
        names = [f"h{number}" for number in range(spec.hosts)] if spec.hosts > 1 else [ONLY_HOST]
        self.hosts = [SimHost(self.ground, name) for name in names]
        self.ids: dict[Address, Ids] = {}
        self._rand = rand
        clients.front_of = world.nodes.get

    # the processes that the supervisor starts

    def start(self) -> None:
        """Start everything, as a supervisor does."""
        for number in range(self.spec.fronts):
            self.start_front(number)
        for host in self.hosts:
            host.start_agent()

    def start_front(self, number: int) -> None:
        address, epoch = Address(f"front/{number}"), self.ground.next_epoch()
        config = JobExecutorConfig(
            max_queued_jobs=self.spec.max_queued_jobs,
            # What all fronts together may give an executor fits its queue.
            max_tasks_per_executor=max(
                1,
                (self.spec.max_tasks_per_executor or self.spec.max_waiting_tasks)
                // self.spec.fronts,
            ),
            routing=self.spec.routing,
        )
        machine = JobExecutor(config, address=address, rand=Rand(epoch, "seeds"))
        self.ids[address] = Ids(epoch)
        front = Node(
            self.world, address, machine, epoch=epoch, carry_out=self._front_effect(address)
        )
        front.host = self.hosts[0].name
        if number == 0:
            self._start_cluster_manager(front)
        for node in self.executors():
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

    def set_targets(self, counts: tuple[tuple[Role, int], ...]) -> bool:
        """Want other numbers of executors in these roles; whether there was somebody to tell."""
        manager = self.world.nodes.get(CLUSTER)
        if manager is not None:
            manager.deliver(TargetsSet(model=MODEL, counts=counts))
        return manager is not None

    def executors(self) -> list[Node]:
        """Living executor processes, oldest first."""
        nodes = [node for host in self.hosts for node in host.processes.values()]
        return sorted(nodes, key=executor_of) if len(self.hosts) > 1 else nodes

    def host_of(self, node: Node) -> SimHost:
        return next(host for host in self.hosts if host.name == node.host)

    def kill_executor(self, node: Node, reason: str) -> None:
        self.host_of(node).kill_executor(node, reason)

    def fronts(self) -> list[tuple[Node, Ids]]:
        """Living fronts."""
        pairs = [(self.world.nodes.get(address), ids) for address, ids in sorted(self.ids.items())]
        return [(node, ids) for node, ids in pairs if node is not None]

    def _start_cluster_manager(self, front: Node) -> None:
        counts = (
            (Role.COLOCATED, self.spec.replicas),
            (Role.PREFILL, self.spec.prefill),
            (Role.DECODE, self.spec.decode),
        )
        machine = ClusterManager(
            ClusterManagerConfig(tick_s=0.5, num_agents=self.spec.hosts),
            groups=tuple(
                GroupConfig(model=MODEL, role=role, count=count) for role, count in counts if count
            ),
        )
        host = self.hosts[0].name
        manager = self.ground.node(CLUSTER, machine, host, _ignore)
        front.deliver(PeerJoined(peer=CLUSTER, epoch=manager.epoch))
        manager.deliver(PeerJoined(peer=front.address, epoch=front.epoch))
        for address, node in list(self.world.nodes.items()):
            if node is not front and address.startswith(("agent/", "front/", "executor/")):
                self.world.network.connect(node, manager)

    def _front_effect(self, front: Address) -> Callable[[Effect], None]:
        def carry_out(effect: Effect) -> None:
            if isinstance(effect, Emit):
                self.clients.output(front, effect.output)

        return carry_out


def _ignore(_: Effect) -> None:
    """Facts need no carrying out here."""
