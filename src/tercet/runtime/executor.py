"""A task executor's process, from its birth in the zygote to its first step.

Scaler-Pre     wish -> process                 (agent, zygote)
TE-Pre-Load    known to the agent and supervisor, log, device chosen
TE-Load        model opened, image mapped, program compiled
TE-Post-Load   arena mapped, warmed up and measured
Scaler-Post    machine made, peers dialed: it tells the agent that it is ready
"""

import asyncio
import mmap
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn

import uvloop
from msgspec.structs import replace

from tercet.base.errors import Invalid, must
from tercet.base.ids import BLOCK_TOKENS, Address, ExecutorId
from tercet.devices.contract import Executable
from tercet.engine.blas import BlasThreads
from tercet.engine.build import build_engine, compile_model, kv_block_bytes
from tercet.engine.engine import Engine
from tercet.engine.memory import AddressRange, arena_layout
from tercet.engine.progress import PROGRESS_BYTES, ProgressWriter
from tercet.engine.threads import ThreadChoice
from tercet.messages.effects import Fact
from tercet.messages.events import PeerJoined, Received, TaskExecutorEvent
from tercet.messages.kv import KvLayout, Reach
from tercet.messages.plan import StepCost
from tercet.messages.wire import ChangeRole, ExecutorReady, Members, Role
from tercet.models import OpenedModel
from tercet.runtime.borrowing import NUM_ARENAS, Borrowing, arena_region
from tercet.runtime.codec import Facts
from tercet.runtime.control import Begin, Born, Channel, Failed, Fork, Go, Lend, Note, Wants
from tercet.runtime.driver import Ports
from tercet.runtime.endpoints import endpoint_of, listen, tcp
from tercet.runtime.engine_thread import EngineThread, Threads
from tercet.runtime.executor_machine import MakeTaskExecutor
from tercet.runtime.faulty import FaultyExecutable, faults_of
from tercet.runtime.links import Links
from tercet.runtime.mover import Mover
from tercet.runtime.opening import Opened, open_configured
from tercet.runtime.peers import PeerEvent
from tercet.runtime.process import be_the_first_to_go, end_if_orphaned, name_process
from tercet.runtime.setting import Setting
from tercet.runtime.supervise import OrStop, stop_on_loop_errors
from tercet.task_executor.books import books, economics
from tercet.task_executor.config import Capacity
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.tcp import TcpWire

CLUSTER = Address("cluster")
BEAT_S = 0.1
FACTS_S = 0.5
FACTS_MAX = 4096
"""Facts that wait to be sent; more are dropped (I6)."""
_REPARENT_S = 0.0002


@dataclass(frozen=True)
class Parentage:
    """Whose child an executor first is, and whose it becomes."""

    middle: int
    supervisor: int


@dataclass(frozen=True)
class _Loaded:
    """Everything that an executor computes with."""

    model: OpenedModel
    engine: Engine
    memory: AddressRange
    cost: StepCost
    capacity: Capacity
    threads: Threads | None
    """Of products by a library; None where the device has a team of its own."""


class Phases:
    """Durations of the five steps of a start (DeepServe)."""

    def __init__(self, asked: int) -> None:
        self._last = asked
        self.durations: list[tuple[str, int]] = []

    def over(self, name: str) -> None:
        now = time.monotonic_ns()
        self.durations.append((name, now - self._last))
        self._last = now


def live(
    begin: Begin, wish: Fork, *, birth: Channel, progress: int, parentage: Parentage
) -> NoReturn:
    """Be the executor that was wished for; the process ends with it."""
    with OrStop(lambda: f"executor {wish.executor} could not start"):
        while os.getppid() == parentage.middle:
            time.sleep(_REPARENT_S)
        end_if_orphaned(parentage.supervisor)
        name_process(f"tercet: task executor {wish.executor} {wish.role} {wish.model}")
        be_the_first_to_go()
        phases = Phases(wish.asked)
        phases.over("Scaler-Pre")
        _be_born(birth)
        page = mmap.mmap(progress, PROGRESS_BYTES)
        os.close(progress)
        setting = Setting(begin, name=f"executor/{wish.executor}", epoch=wish.epoch)
        phases.over("TE-Pre-Load")
        try:
            loaded = _load(setting, wish, birth, phases)
        except Invalid as error:
            birth.send(Failed(sentence=error.sentence, code=error.code))
            os._exit(2)
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        writer = ProgressWriter(memoryview(page))
        executor = _Executor(setting, wish, loaded, phases=phases, progress=writer)
        asyncio.run(executor.serve(birth))
    os._exit(0)


def _be_born(birth: Channel) -> None:
    """Be known to the agent and through it to the supervisor, or end."""
    descriptor = os.pidfd_open(os.getpid())
    known = birth.send(Born(pid=os.getpid()), (descriptor,))
    os.close(descriptor)
    if not known or _answer(birth) is None:
        os._exit(0)


def _answer(birth: Channel) -> tuple[Note, list[int]] | None:
    received = birth.receive()
    if received is not None:
        must(isinstance(received[0], Go | Lend), f"an executor is told {received[0]!r}")
    return received


def _load(setting: Setting, wish: Fork, birth: Channel, phases: Phases) -> _Loaded:
    config = setting.begin.config
    opened = open_configured(config, threads=wish.threads)
    model = opened.model
    peers = config.runtime.has_peers
    executable = compile_model(model, opened.device, opened.options)
    context_max = min(model.shape.context_max, config.context_max or model.shape.context_max)
    birth.send(Wants(block_bytes=kv_block_bytes(executable), context_max=context_max))
    phases.over("TE-Load")
    threads = _blas_threads(wish.threads) if opened.device.name == "reference" else None
    memory = _map_arena(birth, executable, num_arenas=NUM_ARENAS if peers else 1)
    engine = build_engine(
        executable, shape=model.shape, memory=memory, max_slots=config.scheduling.max_slots
    )
    cost = engine.measure()
    faults = faults_of(config.runtime.faults, wish.executor)
    if faults:
        engine.executable = FaultyExecutable(engine.executable, faults)
    phases.over("TE-Post-Load")
    capacity = Capacity(
        num_blocks=memory.layout.num_blocks,
        context_max=context_max,
        vocab=model.shape.vocab,
        cost=cost,
        fingerprint=f"{model.fingerprint} {opened.device.numerics_id()} {opened.options.kv_dtype}",
    )
    reach = _reach(setting.begin, wish.executor, opened, memory)
    pool = config.pool
    capacity = replace(
        capacity,
        reach=replace(reach, fingerprint=capacity.fingerprint),
        agent=Address(f"agent/{reach.host}") if pool.on else None,
        value_tokens=pool.value_tokens if pool.on else 0,
    )
    return _Loaded(model, engine, memory, cost, capacity, threads)


def _reach(begin: Begin, executor: ExecutorId, opened: Opened, memory: AddressRange) -> Reach:
    """Where others find this executor and its blocks."""
    shape = opened.model.shape
    form = opened.device.kv_form(opened.model.program, opened.options)
    host = next(one for one in begin.names if one.startswith("agent/")).removeprefix("agent/")
    return Reach(
        host=host,
        endpoints=(peer_name(begin, executor),),
        memory=f"{host}/kv/{executor}",
        blocks_at=memory.layout.directory_bytes,
        layout=KvLayout(
            dtype=form.dtype,
            block_tokens=BLOCK_TOKENS,
            layers=shape.num_layers,
            kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            block_bytes=memory.layout.block_bytes,
        ),
    )


def peer_name(begin: Begin, executor: ExecutorId) -> str:
    """Under which name an executor takes connections of its peers."""
    agent = next(address for address in begin.names if address.startswith("agent/"))
    return f"{begin.names[agent].removesuffix(agent)}executor/{executor}"


def _blas_threads(most: int) -> Threads:
    blas = BlasThreads()
    return Threads(blas, ThreadChoice(most, first=blas.quicker(most)))


def _map_arena(birth: Channel, executable: Executable, *, num_arenas: int) -> AddressRange:
    """Map the arena that the agent lends; end if the agent is gone."""
    received = _answer(birth)
    if received is None:
        os._exit(0)
    note, descriptors = received
    if not isinstance(note, Lend):
        os._exit(0)
    layout = arena_layout(note.block_bytes, note.num_blocks)
    memory = AddressRange.reserve(
        layout,
        block_shape=executable.block_shape,
        dtype=executable.kv_dtype,
        num_arenas=num_arenas,
    )
    memory.map_arena(0, descriptors[0], writable=True)
    os.close(descriptors[0])
    return memory


class _Executor:
    """The loop's side: machine, connections, beats."""

    def __init__(
        self,
        setting: Setting,
        wish: Fork,
        loaded: _Loaded,
        *,
        phases: Phases,
        progress: ProgressWriter,
    ) -> None:
        self._setting = setting
        self._wish = wish
        self._loaded = loaded
        self._phases = phases
        self._progress = progress
        self._role = wish.role
        self._listeners: list[socket.socket] = []
        self._capacity = self._listen(loaded.capacity)
        self._facts: list[Fact] = []
        self._books: Fact | None = None
        """What it last told of its blocks."""

    def _listen(self, capacity: Capacity) -> Capacity:
        """Take connections of peers, of other hosts too if there may be any; what they are told."""
        runtime, reach = self._setting.begin.config.runtime, capacity.reach
        if not runtime.has_peers:
            return capacity
        self._listeners.append(listen(reach.endpoints[0]))
        if runtime.data_address is not None:
            remote = listen(tcp(runtime.data_address, 0))
            self._listeners.append(remote)
            reach = replace(
                reach, endpoints=(*reach.endpoints, endpoint_of(remote, runtime.data_address))
            )
        return replace(capacity, reach=reach)

    async def serve(self, lender: Channel) -> None:
        """Serve until the process is killed; `lender`: where the agent lends memory."""
        loop = asyncio.get_running_loop()
        stop_on_loop_errors(loop, f"executor {self._wish.executor}")
        config = self._setting.begin.config
        construction = MakeTaskExecutor(
            config=config.task_executor,
            executor=self._wish.executor,
            capacity=self._capacity,
            scheduling=config.scheduling,
            transfer=config.transfer,
        )
        self._machine = construction.make()
        self._thread = EngineThread(
            self._loaded.engine,
            self._progress,
            loop=loop,
            deliver=self._deliver,
            threads=self._loaded.threads,
        )
        address = Address(f"executor/{self._wish.executor}")
        self._links = Links(self._wish.executor, self._capacity.reach)
        regions = Regions()
        self._borrowing = Borrowing(
            lender, self._loaded.memory, regions=regions, deliver=self._deliver
        )
        self._mover = self._make_mover(regions, loop)
        ports = Ports(
            run_step=self._thread.run_step,
            fact=self._note,
            unmap=self._borrowing.unmap,
            move=self._mover.move,
            sum=self._mover.sum,
        )
        self._host = self._setting.host(address, self._machine, construction, ports=ports)
        self._peers = self._setting.peers(address, self._heard)
        self._host.peers = self._peers
        self._thread.start()
        self._phases.over("Scaler-Post")
        self._beat()
        loop.call_later(FACTS_S, self._send_facts)
        if config.pool.on or config.runtime.has_peers:
            self._borrowing.start()
        for listener in self._listeners:
            await self._peers.serve(listener)
        for peer, name in self._setting.begin.names.items():
            if peer.startswith(("front/", "agent/")) or peer == CLUSTER:
                self._peers.dial(name)
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()
        self._host.close()
        os._exit(0)

    def _make_mover(self, regions: Regions, loop: asyncio.AbstractEventLoop) -> Mover:
        """What carries bytes into the own arena: within the host, and from other hosts."""
        memory, reach = self._loaded.memory, self._capacity.reach
        regions.add(arena_region(memory, reach.memory, 0, writable=True))
        secret = self._setting.begin.secret
        wires = (SharedWire(regions), TcpWire(regions, self._links.data_of, secret=secret))
        return Mover(regions, wires, self._deliver, loop=loop)

    def _deliver(self, event: TaskExecutorEvent) -> None:
        self._host.deliver(event)

    def _heard(self, event: PeerEvent) -> None:
        if isinstance(event, Received) and isinstance(event.message, ChangeRole):
            self._change(event.message.role, event.sender)
            return
        self._deliver(event)
        if isinstance(event, Received) and isinstance(event.message, Members):
            self._link(event.message)
        if isinstance(event, PeerJoined) and event.peer.startswith("agent/"):
            self._peers.send(event.peer, self._ready())

    def _change(self, role: Role, agent: Address) -> None:
        """Serve as this from now on: a label, which others read."""
        self._role = role
        name = f"tercet: task executor {self._wish.executor} {role} {self._wish.model}"
        name_process(name)
        self._peers.send(agent, self._ready())

    def _link(self, members: Members) -> None:
        """Dial whom the list pairs this executor with, and nobody else any more."""
        self._borrowing.news(members)
        dial, hang_up = self._links.news(members)
        for name in hang_up:
            self._peers.hang_up(name)
        for name in dial:
            self._peers.dial(name)

    def _ready(self) -> ExecutorReady:
        return ExecutorReady(
            executor=self._wish.executor,
            epoch=self._wish.epoch,
            pid=os.getpid(),
            role=self._role,
            model=self._wish.model,
            cost=self._loaded.cost,
            num_blocks=self._loaded.capacity.num_blocks,
            context_max=self._loaded.capacity.context_max,
            phases_ns=tuple(self._phases.durations),
            reach=self._capacity.reach,
        )

    def _note(self, fact: Fact) -> None:
        if len(self._facts) < FACTS_MAX:
            self._facts.append(fact)

    def _beat(self) -> None:
        scheduler = self._machine.scheduler
        busy = scheduler.has_work or bool(scheduler.flights)
        self._progress.beat(time.monotonic_ns(), has_work=busy)
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _send_facts(self) -> None:
        told = books(self._machine)
        if told != self._books:
            self._books = told
            self._note(told)
            for fact in economics(self._machine):
                self._note(fact)
        if self._facts:
            self._peers.send_facts(Facts(facts=tuple(self._facts)), to="front/")
            self._facts.clear()
        asyncio.get_running_loop().call_later(FACTS_S, self._send_facts)
