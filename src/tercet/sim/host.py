"""One simulated host: its agent, its executors, its memories; what supervisor and zygote do there.

agent/h0 ── executor/0, executor/2 ...      arenas lent to each other, read-only
    └ disk: stays when the host dies and comes back
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.base.model import ModelShape
from tercet.base.rand import Rand
from tercet.messages.effects import Effect, Forget, Kill, Move, RunStep, Spawn, Sum, Unmap
from tercet.messages.events import (
    Adopted,
    ArenaWithdrawn,
    ProcessExited,
    SlabScanned,
    Spawned,
)
from tercet.messages.kv import Host, KvLayout, Reach
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.node_agent.pool_places import disk_name, dram_name
from tercet.pool.config import PoolConfig
from tercet.scheduling.config import SchedulingConfig
from tercet.sim.arenas import HostArenas, Range
from tercet.sim.clients import Clients
from tercet.sim.engine_host import FINGERPRINT, EngineHost
from tercet.sim.layer_clock import LayerClock
from tercet.sim.lendings import Lendings
from tercet.sim.memories import ARENA_BLOCKS_AT, CELL_BYTES, Memories, Memory
from tercet.sim.moves import Mover
from tercet.sim.node import AnyMachine, Node, World
from tercet.sim.process import Process
from tercet.sim.scenario import ClusterSpec
from tercet.sim.timeline import MS
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor
from tercet.transfer.config import TransferConfig

CLUSTER = Address("cluster")
MODEL = "cost"
SAMPLE_NS = 100 * MS
RESTART_NS = 200 * MS
MB = 1 << 20


@dataclass(kw_only=True)
class Ground:
    """What all hosts of a cluster stand on."""

    world: World
    spec: ClusterSpec
    shape: ModelShape
    cost: StepCost
    clients: Clients
    rand: Rand
    memories: Memories
    mover: Mover
    clock_ahead: int = 0
    """How far the clocks ran ahead of virtual time so far: new processes inherit it."""
    epoch: int = 0
    num_started: int = 0
    engines: dict[ExecutorId, EngineHost] = field(default_factory=dict)
    """Of all executors that are not forgotten."""
    past_reads: tuple[int, int] = (0, 0)
    """Blocks that steps of forgotten executors read, and those in arenas of others."""

    @property
    def num_read(self) -> int:
        return self.past_reads[0] + sum(one.contents.num_read for one in self.engines.values())

    @property
    def num_foreign(self) -> int:
        return self.past_reads[1] + sum(one.contents.num_foreign for one in self.engines.values())

    def forget(self, executor: ExecutorId) -> None:
        engine = self.engines.pop(executor, None)
        if engine is not None:
            read, foreign = self.past_reads
            contents = engine.contents
            self.past_reads = (read + contents.num_read, foreign + contents.num_foreign)

    def next_epoch(self) -> Epoch:
        self.epoch += 1
        return Epoch(self.epoch)

    def node(
        self, address: Address, machine: AnyMachine, host: str, carry_out: Callable[[Effect], None]
    ) -> Node:
        node = Node(self.world, address, machine, epoch=self.next_epoch(), carry_out=carry_out)
        node.host = host
        node.clock_ahead = self.clock_ahead
        return node


class SimHost:
    """Starts, lends, kills and samples, for one agent."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.name = name
        self.agent_address = Address(f"agent/{name}")
        self.processes: dict[ExecutorId, Node] = {}
        """Living executor processes, as the supervisor knows them: they survive their agent."""
        self.next_executor = 0
        """Lowest number that no executor of this host had, as its supervisor knows it."""
        self.down = False
        self._ground = ground
        spec = ground.spec
        self.arenas = HostArenas(name, num_blocks=spec.blocks, layers=spec.layers)
        sealed_max = spec.replicas + spec.prefill + spec.decode
        self.lendings = Lendings(ground.memories, sealed_max=sealed_max)
        self._pool = pool_config(spec)
        if self._pool.disk_bytes:
            ground.memories.add(
                Memory(disk_name(name), host=name, num_cells=self._pool.disk_bytes // CELL_BYTES)
            )

    @property
    def agent(self) -> Node | None:
        """The living agent."""
        return self._ground.world.nodes.get(self.agent_address)

    # the agent

    def start_agent(self) -> None:
        """Start an agent; it adopts what lives and dials the cluster manager and other agents."""
        self.down = False
        ground, world = self._ground, self._ground.world
        config = NodeAgentConfig(progress_floor_s=ground.spec.step_floor_ms / 1000)
        machine = NodeAgent(
            config,
            address=self.agent_address,
            next_executor=self.next_executor,
            host=Host(name=self.name, agent=self.agent_address, pooled=self._pool.on),
            pool=self._pool,
        )
        agent = ground.node(self.agent_address, machine, self.name, self._agent_effect)
        self._open_pool(agent)
        for executor, node in list(self.processes.items()):
            agent.deliver(Adopted(executor=executor, pid=executor))
            world.network.connect(node, agent)
        for address, node in list(world.nodes.items()):
            if address == CLUSTER or (address.startswith("agent/") and node is not agent):
                world.network.connect(agent, node)
        self._sample(agent)

    def _open_pool(self, agent: Node) -> None:
        """New memory, and what the labels on the disk say."""
        memories = self._ground.memories
        for number, size in enumerate(self._pool.segments):
            name = dram_name(self.name, number)
            memories.remove(name)
            memories.add(Memory(name, host=self.name, num_cells=size // CELL_BYTES))
        disk = memories.find(disk_name(self.name))
        if disk is not None:
            found = b"".join(disk.labels.values())
            agent.deliver(SlabScanned(memory=disk.name, labels=found, last=True))

    def kill_agent(self) -> None:
        """Kill the node agent; the supervisor starts another, which adopts what lives."""
        if self.agent is not None:
            self.agent.die()
            self._ground.world.timeline.after(RESTART_NS, self._restart_agent)

    def _restart_agent(self) -> None:
        if not self.down and self.agent is None:
            self.start_agent()

    def die(self, duration: int) -> None:
        """Lose power: all processes and all memory are gone; the disk is there again later."""
        self.down = True
        self.next_executor = 0
        if self.agent is not None:
            self.agent.die()
        for executor, node in list(self.processes.items()):
            del self.processes[executor]
            node.die()
            self._ground.forget(executor)
        self.lendings.lose_all()
        self._ground.world.timeline.after(duration, self.start_agent)

    def _sample(self, agent: Node) -> None:
        """Let the agent look at every executor's progress page, again and again."""
        if not agent.alive:
            return
        if not agent.frozen:
            for executor, node in list(self.processes.items()):
                engine = self._ground.engines[executor]
                agent.deliver(engine.progress(node, frozen_since=node.frozen_since))
        self._ground.world.timeline.after(SAMPLE_NS, lambda: self._sample(agent))

    def _agent_effect(self, effect: Effect) -> None:
        agent = self.agent
        match effect:
            case Spawn():
                self._spawn(effect)
            case Kill(executor=executor, reason=reason):
                node = self.processes.get(executor)
                if node is not None:
                    self.kill_executor(node, reason)
            case Forget(executor=executor):
                self._ground.forget(executor)
            case Move() if agent is not None:
                self._ground.mover.carry_out(agent, effect)
            case Sum() if agent is not None:
                self._ground.mover.sum(agent, effect)
            case _:
                pass

    # executors

    def kill_executor(self, node: Node, reason: str) -> None:
        """End an executor process; its agent hears of it, if there is one."""
        executor = executor_of(node)
        if self.processes.get(executor) is not node:
            return
        del self.processes[executor]
        node.die()
        clock = self._ground.engines[executor].clock
        if clock is not None:
            clock.stop()
        timeline = self._ground.world.timeline
        timeline.after(MS, lambda: self._withdraw(executor))
        agent = self.agent
        if agent is not None:
            event = ProcessExited(executor=executor, reason=reason)
            timeline.after(MS, lambda: agent.deliver(event))

    def _spawn(self, effect: Spawn) -> None:
        ground, executor, agent = self._ground, effect.executor, self.agent
        alive = Address(f"executor/{executor}") in ground.world.nodes
        must(not alive, f"executor {executor} is started twice")
        self.next_executor = max(self.next_executor, executor + 1)
        arena = self.arenas.make(f"{self.name}/kv/{executor}")
        ground.memories.add(arena)
        memory = Range(self.arenas, arena)
        engine = ground.engines[executor] = EngineHost(
            executor,
            spec=ground.spec,
            shape=ground.shape,
            cost=ground.cost,
            memory=memory,
            poison=ground.clients.poison,
        )
        node = self._executor_node(effect, engine)
        engine.clock = LayerClock(ground.world.timeline, arena, lambda: node.thaws_in)
        arena.owner = engine.clock
        self.lendings.made(executor, arena)
        engine.on_poison = lambda: self.kill_executor(node, "killed by signal 11")
        self.processes[executor] = node
        ground.num_started += 1
        if agent is not None:
            agent.deliver(Spawned(executor=executor, pid=executor))
        delay = int(ground.spec.start_ms * MS * (0.5 + ground.rand.unit()))
        ground.world.timeline.after(delay, lambda: self._ready(node))

    def _executor_node(self, wish: Spawn, engine: EngineHost) -> Node:
        ground, spec, arena = self._ground, self._ground.spec, engine.memory.own
        layout = KvLayout(
            dtype="none",
            block_tokens=16,
            layers=spec.layers,
            kv_heads=1,
            head_dim=1,
            block_bytes=arena.block_bytes,
        )
        reach = Reach(
            host=self.name,
            memory=arena.name,
            blocks_at=ARENA_BLOCKS_AT,
            layout=layout,
            fingerprint=FINGERPRINT,
        )
        machine = TaskExecutor(
            TaskExecutorConfig(),
            executor=wish.executor,
            capacity=Capacity(
                num_blocks=spec.blocks,
                context_max=spec.context_max,
                cost=ground.cost,
                fingerprint=FINGERPRINT,
                reach=reach,
                agent=self.agent_address if self._pool.on else None,
                value_tokens=self._pool.value_tokens if self._pool.on else 0,
            ),
            scheduling=SchedulingConfig(
                max_slots=spec.slots,
                max_waiting=spec.max_waiting_tasks,
                speculation=spec.speculation,
            ),
            transfer=TransferConfig(way=spec.way),
        )

        def carry_out(effect: Effect) -> None:
            match effect:
                case RunStep():
                    engine.run(node, effect)
                case Move():
                    ground.mover.carry_out(node, effect)
                case Sum():
                    ground.mover.sum(node, effect)
                case Unmap(memory=memory):
                    self.lendings.unmapped(wish.executor, memory, engine.memory)
                case _:
                    pass

        address = Address(f"executor/{wish.executor}")
        node = ground.node(address, machine, self.name, carry_out)
        ready = ExecutorReady(
            executor=wish.executor,
            epoch=node.epoch,
            pid=wish.executor,
            role=wish.role,
            model=MODEL,
            cost=ground.cost,
            num_blocks=spec.blocks,
            context_max=spec.context_max,
            reach=reach,
        )
        process = Process(ground.world, node, self.agent_address, ready)
        node.before_turn = process.hears
        return node

    def _ready(self, node: Node) -> None:
        """The model is loaded: dial agent, fronts and cluster manager; arenas are lent."""
        if not node.alive:
            return
        world = self._ground.world
        for address, other in list(world.nodes.items()):
            if address in (self.agent_address, CLUSTER) or address.startswith("front/"):
                world.network.connect(node, other)
        executor = executor_of(node)
        engines = self._ground.engines
        for event, reader in self.lendings.ready(
            executor, {one: engines[one].memory for one in self.processes}
        ):
            self.processes[reader].deliver(event)

    def _withdraw(self, executor: ExecutorId) -> None:
        for memory, reader in self.lendings.gone(executor):
            node = self.processes.get(reader)
            if node is not None:
                node.deliver(ArenaWithdrawn(memory=memory))


def pool_config(spec: ClusterSpec) -> PoolConfig:
    """Each host's share."""
    disk = int(spec.pool_disk_mb * MB) // CELL_BYTES * CELL_BYTES
    return PoolConfig(
        dram_bytes=int(spec.pool_dram_mb * MB) // CELL_BYTES * CELL_BYTES,
        disk_path="disk" if disk else None,
        disk_bytes=disk,
        value_tokens=spec.value_tokens,
    )


def executor_of(node: Node) -> ExecutorId:
    return ExecutorId(int(node.address.removeprefix("executor/")))
