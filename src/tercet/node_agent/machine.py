"""The node agent's machine: a process for every executor that the cluster manager wants here.

    StartExecutor -> Spawn -> Spawned -> ExecutorReady (from the executor) -> relayed to the cluster
    ProgressSeen  -> Kill, if there is no progress
    ProcessExited -> ExecutorGone to the cluster, Forget

What a state lets happen is in `states`; what is done on entering one is here, one function each.
"""

from tercet.base.errors import must
from tercet.base.ids import Address, ExecutorId
from tercet.messages.effects import Effect, Fact, Forget, Kill, Send, Spawn, Wake
from tercet.messages.events import (
    Adopted,
    Moved,
    NodeAgentEvent,
    PeerGone,
    PeerJoined,
    ProcessExited,
    ProgressSeen,
    Received,
    Spawned,
    SpawnFailed,
    Summed,
    Woke,
)
from tercet.messages.images import (
    ImageFind,
    ImageHeld,
    ImageOpened,
    ImageParts,
    ImagePrefetch,
    ImageSealed,
)
from tercet.messages.kv import Host
from tercet.messages.wire import (
    AgentReport,
    ChangeRole,
    ExecutorGone,
    ExecutorReady,
    StartExecutor,
    StartWaits,
    StopExecutor,
)
from tercet.node_agent import imaging
from tercet.node_agent.births import Births
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.imaging import Imaging
from tercet.node_agent.pooling import Pooling
from tercet.node_agent.progress import ProgressWatch
from tercet.node_agent.residents import Gone, Resident
from tercet.node_agent.states import ExecutorEvent, ExecutorState, next_state
from tercet.pool.config import PoolConfig

CLUSTER = Address("cluster")
AGENT = "agent/"
START = "start/"
KILL = "kill/"
START_LOOK_NS = 1_000_000_000

UNREADY = (ExecutorState.SPAWNING, ExecutorState.STARTING)
DYING = (ExecutorState.DOOMED, ExecutorState.KILLED)


class NodeAgent:
    """Owns the executors of one host from their spawning to their last trace."""

    def __init__(
        self,
        config: NodeAgentConfig,
        *,
        address: Address,
        next_executor: int = 0,
        image: str = "",
        host: Host | None = None,
        pool: PoolConfig | None = None,
    ) -> None:
        """`image`: the key of the model image that executors need and this host may lack.
        `host`: what the cluster is told of this host.
        """
        self._config = config
        self._address = address
        self._ticket = 0
        self._imaging = Imaging(address.removeprefix(AGENT), ticket=self._next_ticket)
        self._host = host
        self.pooling = Pooling(pool or PoolConfig(), address=address, ticket=self._next_ticket)
        self._births = Births(image, self._imaging)
        self._residents: dict[ExecutorId, Resident] = {}
        self._gone = Gone()
        self._next_executor = next_executor
        self._start_timeout_ns = int(config.start_timeout_s * 1e9)
        self._kill_retry_ns = int(config.kill_retry_s * 1e9)

    @property
    def executors(self) -> tuple[tuple[ExecutorId, ExecutorState], ...]:
        """Every executor that has, or will have, a process here, with its state."""
        return tuple((r.executor, r.state) for r in self._residents.values())

    def on(  # noqa: C901, PLR0912  one case for each event
        self, event: NodeAgentEvent, now: int
    ) -> list[Effect]:
        """Take one event; the work is that of one executor, or one line for each of them."""
        out: list[Effect] = []
        if self.pooling.on(event, now, out):
            return out
        match event:
            case ProgressSeen():
                self._progress(event, now, out)
            case Received(sender=sender, message=ExecutorReady() as ready):
                if sender == f"executor/{ready.executor}":
                    self._ready(ready, now, out)
            case Received(message=StartExecutor() as start):
                self._start(start, now, out)
            case Received(message=StopExecutor() as stop):
                self._stop(stop, now, out)
            case Received(message=ChangeRole(executor=executor) as change):
                out.append(Send(to=Address(_name(executor)), message=change, cause=CLUSTER))
            case Spawned(executor=executor):
                if executor in self._residents:
                    self._step(executor, ExecutorEvent.SPAWNED, now, out)
                else:
                    out.append(Kill(executor=executor, reason="nobody asked for it"))
            case SpawnFailed(executor=executor, reason=reason):
                self._fail(executor, reason, now, out)
            case Adopted(executor=executor):
                self._adopt(executor, now, out)
            case ProcessExited(executor=executor, reason=reason):
                self._exit(executor, reason, now, out)
            case PeerJoined(peer=peer):
                if peer == CLUSTER:
                    out.append(Send(to=CLUSTER, message=self._report(), cause=CLUSTER))
                elif peer.startswith(AGENT):
                    self._imaging.joined(peer, out)
            case Woke(key=key):
                self._woke(key, now, out)
            case Moved() | Summed() | ImageHeld() | ImageOpened() | ImageSealed():
                self._imaging.on(event, now, out)
                self._deliver_unborn(now, out)
            case Received(
                sender=sender, message=ImageFind() | ImageParts() | ImagePrefetch() as said
            ):
                self._imaging.heard(said, sender, now, out)
                self._deliver_unborn(now, out)
            case PeerGone(peer=peer):
                self._imaging.gone(peer)
            case Received():
                pass  # only an exit says that an executor is dead; the cluster will be back
        return out

    def check(self) -> None:
        """Raise `InvariantBroken` unless every executor's record fits its state."""
        self._imaging.check()
        self.pooling.check()
        for number, resident in self._residents.items():
            name = f"executor {number}"
            must(number == resident.executor, f"{name} is filed as another")
            must(resident.state is not ExecutorState.GONE, f"{name} is gone and still kept")
            must(number not in self._gone.executors, f"{name} is both here and gone")
            must(number < self._next_executor, f"{name} is not below {self._next_executor}")
            if resident.state is ExecutorState.READY:
                must(resident.ready, f"{name} is ready but never said so")
            if resident.state in DYING:
                must(resident.reason, f"{name} was killed for no reason")

    # what the cluster manager wants

    def _start(self, start: StartExecutor, now: int, out: list[Effect]) -> None:
        executor = start.executor
        reason = self._gone.executors.get(executor)
        if reason is not None:
            self._tell_gone(executor, reason, out)
        elif executor not in self._residents:
            self._settle(executor, ExecutorState.SPAWNING, now, out)
            spawn = Spawn(
                executor=executor, role=start.role, model=start.model, cause=_name(executor)
            )
            self._births.wish(spawn, now, out)
            self._deliver_unborn(now, out)

    def _stop(self, stop: StopExecutor, now: int, out: list[Effect]) -> None:
        executor = stop.executor
        if executor not in self._residents:
            self._tell_gone(executor, self._gone.executors.get(executor, "unknown here"), out)
            return
        self._blame(executor, stop.reason)
        self._step(executor, ExecutorEvent.STOP, now, out)
        if self._births.cancel(executor):
            self._fail(executor, stop.reason, now, out)

    def _report(self) -> AgentReport:
        residents = self._residents.values()
        return AgentReport(
            agent=self._address,
            starting=tuple(r.executor for r in residents if r.state in UNREADY),
            ready=tuple(
                r.ready for r in residents if r.state is ExecutorState.READY and r.ready is not None
            ),
            next_executor=self._next_executor,
            host=self._host,
        )

    # what executors and their processes do

    def _ready(self, ready: ExecutorReady, now: int, out: list[Effect]) -> None:
        executor = ready.executor
        if executor in self._gone.executors:
            return
        if executor not in self._residents:
            # A restarted agent hears of it before the driver adopts its process.
            self._settle(executor, ExecutorState.STARTING, now, out)
        self._residents[executor].ready = ready
        self._step(executor, ExecutorEvent.READY, now, out)

    def _adopt(self, executor: ExecutorId, now: int, out: list[Effect]) -> None:
        if executor in self._gone.executors:
            return
        if executor not in self._residents:
            self._settle(executor, ExecutorState.STARTING, now, out)
        self._step(executor, ExecutorEvent.ADOPTED, now, out)

    def _fail(self, executor: ExecutorId, reason: str, now: int, out: list[Effect]) -> None:
        if executor in self._residents:
            self._blame(executor, f"it could not be spawned: {reason}")
            self._step(executor, ExecutorEvent.SPAWN_FAILED, now, out)

    def _exit(self, executor: ExecutorId, reason: str, now: int, out: list[Effect]) -> None:
        if executor in self._residents:
            self._blame(executor, reason)
            self._step(executor, ExecutorEvent.EXITED, now, out)
        else:
            out.append(Forget(executor=executor, cause=_name(executor)))

    def _progress(self, sample: ProgressSeen, now: int, out: list[Effect]) -> None:
        resident = self._residents.get(sample.executor)
        if resident is None or not _is_up(resident.state, sample):
            return
        reason = resident.watch.see(sample, now)
        if reason is not None:
            resident.reason = reason
            self._step(sample.executor, ExecutorEvent.STUCK, now, out)

    def _woke(self, key: str, now: int, out: list[Effect]) -> None:
        if key == imaging.WAKE:
            self._imaging.woke(now, out)
            self._deliver_unborn(now, out)
            return
        kind, _, number = key.partition("/")
        resident = self._residents.get(ExecutorId(int(number))) if number.isdecimal() else None
        if resident is None:
            return
        if kind + "/" == START and self._births.waits(resident.executor):
            self._look_again(resident, now, out)  # the image has a patience of its own
            waits = StartWaits(executor=resident.executor)
            out.append(Send(to=CLUSTER, message=waits, cause=_name(resident.executor)))
        elif kind + "/" == START and resident.state in UNREADY:
            resident.waited_ns += min(now - resident.looked, 2 * START_LOOK_NS)
            if resident.waited_ns < self._start_timeout_ns:
                self._look_again(resident, now, out)
                return
            timeout = f"{self._config.start_timeout_s:g} s"
            resident.reason = f"it was not ready within {timeout}"
            self._step(resident.executor, ExecutorEvent.STUCK, now, out)
        elif kind + "/" == KILL and resident.state is ExecutorState.KILLED:
            self._kill(resident, now, out)

    def _next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _deliver_unborn(self, now: int, out: list[Effect]) -> None:
        """Carry on with executors whose image has come, or will not come."""
        for spawn, reason in self._births.due():
            if reason:
                self._fail(spawn.executor, f"its model image did not come: {reason}", now, out)
            elif spawn.executor in self._residents:
                out.append(spawn)

    # states

    def _settle(
        self, executor: ExecutorId, state: ExecutorState, now: int, out: list[Effect]
    ) -> None:
        resident = Resident(executor=executor, state=state, watch=ProgressWatch(self._config))
        self._residents[executor] = resident
        self._next_executor = max(self._next_executor, executor + 1)
        self._look_again(resident, now, out)

    def _look_again(self, resident: Resident, now: int, out: list[Effect]) -> None:
        resident.looked = now
        key = f"{START}{resident.executor}"
        out.append(Wake(at=now + START_LOOK_NS, key=key, cause=_name(resident.executor)))

    def _blame(self, executor: ExecutorId, reason: str) -> None:
        """Keep the first reason: why it was killed says more than that SIGKILL ended it."""
        resident = self._residents[executor]
        resident.reason = resident.reason or reason or "no reason given"

    def _step(
        self, executor: ExecutorId, event: ExecutorEvent, now: int, out: list[Effect]
    ) -> None:
        resident = self._residents[executor]
        before = resident.state
        resident.state = next_state(before, event, executor)
        if event is ExecutorEvent.READY and resident.state is ExecutorState.READY:
            self._announce(resident, out)
        elif resident.state is ExecutorState.KILLED and before is not ExecutorState.KILLED:
            self._kill(resident, now, out)
        elif resident.state is ExecutorState.GONE:
            self._bury(resident, out)

    def _announce(self, resident: Resident, out: list[Effect]) -> None:
        ready = resident.ready
        if ready is None:
            return
        cause = _name(resident.executor)
        out.append(Send(to=CLUSTER, message=ready, cause=cause))
        phases = tuple((name, ns / 1e9) for name, ns in ready.phases_ns)
        labels = (("executor", str(ready.executor)), ("model", ready.model))
        out.append(Fact(name="executor.ready", values=phases, labels=labels, cause=cause))

    def _kill(self, resident: Resident, now: int, out: list[Effect]) -> None:
        executor, cause = resident.executor, _name(resident.executor)
        out.append(Kill(executor=executor, reason=resident.reason, cause=cause))
        out.append(Wake(at=now + self._kill_retry_ns, key=f"{KILL}{executor}", cause=cause))

    def _bury(self, resident: Resident, out: list[Effect]) -> None:
        executor = resident.executor
        del self._residents[executor]
        self._gone.add(executor, resident.reason)
        self._tell_gone(executor, resident.reason, out)
        cause = _name(executor)
        out.append(Forget(executor=executor, cause=cause))
        labels = (("executor", str(executor)), ("reason", resident.reason))
        out.append(Fact(name="executor.gone", labels=labels, cause=cause))

    def _tell_gone(self, executor: ExecutorId, reason: str, out: list[Effect]) -> None:
        message = ExecutorGone(executor=executor, reason=reason)
        out.append(Send(to=CLUSTER, message=message, cause=_name(executor)))


def _is_up(state: ExecutorState, sample: ProgressSeen) -> bool:
    """Whether it has come up, so that its loop must turn. One that a restarted agent adopted may
    have stopped before it could say so again: its page tells that it was up once.
    """
    begun = state is ExecutorState.STARTING and sample.loop_beat != 0
    return begun or state is ExecutorState.READY


def _name(executor: ExecutorId) -> str:
    return f"executor/{executor}"
