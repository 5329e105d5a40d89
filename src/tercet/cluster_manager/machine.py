"""The cluster manager's machine: compares what is wanted with what there is, again and again.

    AgentReport, ExecutorReady, ExecutorGone, TargetsSet, Woke(tick)
        -> reconcile -> ChangeRole, StartExecutor, StopExecutor
                     -> Members, if they changed

Level-triggered: no event is an order by itself, so a lost message costs a tick and nothing else.
"""

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.casting import cast, relabel
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.group import Group
from tercet.cluster_manager.roster import Agent, Member, Roster, other_weights
from tercet.cluster_manager.standing import ClusterStanding
from tercet.cluster_manager.states import MemberEvent, MemberState
from tercet.messages.effects import Effect, Fact, Send, Wake
from tercet.messages.events import (
    ClusterManagerEvent,
    DrainRequested,
    PeerGone,
    PeerJoined,
    Received,
    TargetsSet,
    Woke,
)
from tercet.messages.kv import Host
from tercet.messages.wire import (
    AgentReport,
    ExecutorGone,
    ExecutorReady,
    HostRefused,
    Members,
    StartExecutor,
    StartWaits,
    StopExecutor,
)

TICK = "tick"
RETRY = "retry"
AGENT = "agent/"
AUDIENCE = ("front/", "executor/", AGENT)
"""Who is told of the members: fronts place tasks on them, executors and agents reach them."""
Picture = tuple[tuple[ExecutorReady, ...], bool, tuple[Host, ...]]
"""Who can take tasks, whether the list is settled, and which hosts there are."""


class ClusterManager:
    """Owns the decision which executors there are; lives at the address `cluster`.

    `groups` is what is wanted: no two of the same model and role. `weights` is what all hosts must
    serve; empty: nobody looks.
    """

    def __init__(
        self,
        config: ClusterManagerConfig,
        *,
        groups: tuple[GroupConfig, ...] = (),
        next_executor: int = 0,
        weights: str = "",
    ) -> None:
        kinds = [(group.model, group.role) for group in groups]
        for kind in kinds:
            must(kinds.count(kind) == 1, f"the group {kind[0]}/{kind[1]} is wanted twice")
        self._config = config
        self._weights = weights
        self._groups = [Group(wanted, config) for wanted in groups]
        self._roster = Roster()
        self._audience: dict[Address, Epoch] = {}
        self._next_executor = next_executor
        self._settled = False
        self._settle_by: int | None = None
        self._version = 0
        self._told = self._picture()
        self._told_at: int | None = None
        self._ticking = False
        self._no_starts_from: int | None = None

    def standing(self) -> ClusterStanding:
        """Count what there is; O(executors)."""
        states = [member.state for member in self._roster.members.values()]
        return ClusterStanding(
            settled=self._settled,
            num_agents=sum(agent.connected for agent in self._roster.agents.values()),
            num_wanted=sum(group.wanted.count for group in self._groups),
            num_ready=states.count(MemberState.READY),
            num_starting=states.count(MemberState.STARTING),
            num_stopping=states.count(MemberState.STOPPING),
            wanted=tuple((*group.kind, group.wanted.count) for group in self._groups),
            members=self._roster.standings,
            hosts=self._roster.hosts,
            failed=next((group.failed for group in self._groups if group.failed), ""),
        )

    @property
    def ready(self) -> tuple[ExecutorReady, ...]:
        """Those that can take tasks, by id."""
        return self._roster.ready

    def on(self, event: ClusterManagerEvent, now: int) -> list[Effect]:  # noqa: C901, PLR0912  one case each
        """Take one event and reconcile; the work is bounded by members, agents and fronts."""
        out: list[Effect] = []
        match event:
            case Received(message=AgentReport() as report):
                self._report(report, event.epoch, now, out)
            case Received(sender=sender, message=ExecutorReady() as ready):
                if sender in self._roster.agents:
                    self._ready(ready, sender, now, out)
            case Received(sender=sender, message=ExecutorGone() as gone):
                member = self._roster.members.get(gone.executor)
                if member is not None and member.agent == sender:
                    if member.state is MemberState.STARTING:
                        self._start_failed(member, gone.reason, now)
                    self._bury(member, gone.reason, out)
            case Received(message=StartWaits(executor=executor)):
                self._roster.start_waits(executor, now)
            case PeerJoined():
                self._joined(event, out)
            case PeerGone():
                self._peer_gone(event, now)
            case Woke(key=key):
                self._ticking = self._ticking and key != TICK
            case DrainRequested(deadline=deadline):
                self._no_starts_from = deadline
            case TargetsSet():
                self._want(event, out)
            case Received():
                pass  # meant for another kind of machine
        self._reconcile(now, out)
        return out

    def check(self) -> None:
        """Raise `InvariantBroken` unless members, targets and what was told agree."""
        self._roster.check()
        must(self._told == self._picture(), "nobody was told of a change")
        for member in self._roster.members.values():
            must(
                member.executor < self._next_executor,
                f"executor {member.executor} exists, and {self._next_executor} would be next",
            )
        for group in self._groups:
            wanted = group.wanted
            count = len(self._roster.active(*group.kind))
            kind = f"{wanted.role} executors of {wanted.model}"
            must(count <= wanted.count, f"{count} {kind}, not {wanted.count}")
        must(self._ticking, "no tick is under way")

    # what is heard

    def _want(self, event: TargetsSet, out: list[Effect]) -> None:
        for role, count in event.counts:
            kind = (event.model, role)
            group = next((one for one in self._groups if one.kind == kind), None)
            if group is None:
                wanted = GroupConfig(model=event.model, role=role, count=count)
                self._groups.append(Group(wanted, self._config))
            else:
                group.want(count)
        values = tuple((role.value, float(count)) for role, count in event.counts)
        labels = (("model", event.model),)
        out.append(Fact(name="cluster.targets", values=values, labels=labels, cause="cluster"))

    def _joined(self, event: PeerJoined, out: list[Effect]) -> None:
        peer = event.peer
        if peer.startswith(AGENT):
            former = self._roster.agents.get(peer)
            if former is not None and former.connected and former.epoch > event.epoch:
                return  # of two connections that of its present self counts
            host = None if former is None else former.host
            self._roster.agents[peer] = Agent(address=peer, epoch=event.epoch, host=host)
        if peer.startswith(AUDIENCE) and self._audience.get(peer, Epoch(0)) <= event.epoch:
            self._audience[peer] = event.epoch
            out.append(self._members_for(peer))

    def _peer_gone(self, event: PeerGone, now: int) -> None:
        agent = self._roster.agents.get(event.peer)
        if agent is not None and agent.epoch == event.epoch:
            agent.connected = False
            agent.reported = False
            agent.away_since = now
        if self._audience.get(event.peer) == event.epoch:
            del self._audience[event.peer]

    def _report(self, report: AgentReport, epoch: Epoch, now: int, out: list[Effect]) -> None:
        agent = self._roster.agents.get(report.agent)
        if agent is None or agent.epoch != epoch:
            return
        if self._weights and (why := other_weights(report, self._weights)):
            self._refuse(report.agent, why, out)
            return
        agent.reported = True
        agent.host = report.host
        if self._settle_by is None:
            self._settle_by = now + int(self._config.agent_timeout_s * 1e9)
        self._next_executor = max(self._next_executor, report.next_executor)
        listed = {ready.executor: None for ready in report.ready}
        listed.update(dict.fromkeys(report.starting))
        for member in self._roster.on_agent(report.agent):
            if member.executor not in listed:
                self._bury(member, "its agent no longer has it", out)
        for ready in report.ready:
            self._ready(ready, report.agent, now, out)
        for executor in report.starting:
            taken = self._is_of_another(executor, report.agent, out)
            if not taken and executor not in self._roster.members:
                self._add(Member(executor=executor, agent=report.agent, since=now))

    def _refuse(self, agent: Address, why: str, out: list[Effect]) -> None:
        """Have nothing to do with a host: nothing of it is in any list, nothing is asked of it."""
        for member in self._roster.on_agent(agent):
            self._bury(member, why, out)
        del self._roster.agents[agent]
        self._audience.pop(agent, None)
        out.append(Send(to=agent, message=HostRefused(reason=why), cause="cluster"))
        labels = (("agent", agent), ("reason", why))
        out.append(Fact(name="cluster.host_refused", labels=labels, cause="cluster"))

    def _is_of_another(self, executor: ExecutorId, agent: Address, out: list[Effect]) -> bool:
        """Whether a number is taken: a cluster that restarted did not wait for ever for what its
        former self had. Who came first keeps it, the other one is stopped.
        """
        member = self._roster.members.get(executor)
        if member is None or member.agent == agent:
            return False
        message = StopExecutor(executor=executor, reason=f"{member.agent} has one of its number")
        out.append(Send(to=agent, message=message, cause=_name(member)))
        return True

    def _ready(self, ready: ExecutorReady, agent: Address, now: int, out: list[Effect]) -> None:
        if self._is_of_another(ready.executor, agent, out):
            return
        member = self._roster.members.get(ready.executor)
        if member is None:
            member = Member(executor=ready.executor, agent=agent, since=now)
            self._add(member)
        if member.role is None:
            member.role = ready.role
        member.model, member.ready = ready.model, ready
        member.step(MemberEvent.READY)
        for group in self._groups:
            if group.kind == (member.model, member.role):
                group.became_ready()

    def _add(self, member: Member) -> None:
        self._roster.members[member.executor] = member
        self._next_executor = max(self._next_executor, member.executor + 1)

    def _bury(self, member: Member, reason: str, out: list[Effect]) -> None:
        before = member.state
        member.step(MemberEvent.GONE)
        del self._roster.members[member.executor]
        labels = (("executor", str(member.executor)), ("state", before.value), ("reason", reason))
        out.append(Fact(name="cluster.executor_gone", labels=labels, cause=_name(member)))

    def _start_failed(self, member: Member, reason: str, now: int) -> None:
        for group in self._groups:
            if group.kind == (member.model, member.role):
                group.start_failed(member.since, reason, now)

    # what is done about it

    def _reconcile(self, now: int, out: list[Effect]) -> None:
        self._give_up_on_agents(now, out)
        if not self._settled and self._settle_by is not None:
            enough = self._roster.num_reported >= self._config.num_agents
            self._settled = enough or now >= self._settle_by
        relabel(self._groups, self._roster)
        self._stop_unwanted(now, out)
        out.extend(cast(self._roster, again=not self._ticking))
        if self._settled:
            self._start_missing(now, out)
        self._tell(now, out)
        if not self._ticking:
            self._ticking = True
            at = now + int(self._config.tick_s * 1e9)
            out.append(Wake(at=at, key=TICK, cause=TICK))

    def _give_up_on_agents(self, now: int, out: list[Effect]) -> None:
        timeout = int(self._config.agent_timeout_s * 1e9)
        for agent in list(self._roster.agents.values()):
            if agent.connected or now - agent.away_since < timeout:
                continue
            for member in self._roster.on_agent(agent.address):
                self._bury(member, f"its agent {agent.address} has been away too long", out)
            del self._roster.agents[agent.address]

    def _stop_unwanted(self, now: int, out: list[Effect]) -> None:
        """Stop what no group wants and what starts for too long; remind agents of what they were
        told to stop, once a tick.
        """
        timeout = int(self._config.start_timeout_s * 1e9)
        kinds = [group.kind for group in self._groups]
        for member in list(self._roster.members.values()):
            if member.state is MemberState.STOPPING:
                if not self._ticking:
                    self._send_stop(member, out)
            elif member.model is not None and (member.model, member.role) not in kinds:
                self._stop(member, "nobody wants its kind", out)
            elif member.state is MemberState.STARTING and now - member.since >= timeout:
                reason = f"it was not ready within {self._config.start_timeout_s:g} s"
                self._start_failed(member, reason, now)
                self._stop(member, reason, out)
        for group in self._groups:
            active = self._roster.active(*group.kind)
            # Those that do not serve yet go first, then the youngest.
            active.sort(key=lambda m: (m.state is MemberState.READY, -m.executor))
            for member in active[: max(0, len(active) - group.wanted.count)]:
                self._stop(member, "there are more of its kind than wanted", out)

    def _stop(self, member: Member, reason: str, out: list[Effect]) -> None:
        member.step(MemberEvent.STOP)
        member.reason = reason
        self._send_stop(member, out)

    def _send_stop(self, member: Member, out: list[Effect]) -> None:
        message = StopExecutor(executor=member.executor, reason=member.reason)
        out.append(Send(to=member.agent, message=message, cause=_name(member)))

    def _start_missing(self, now: int, out: list[Effect]) -> None:
        if self._no_starts_from is not None and now >= self._no_starts_from:
            return
        # What starts unknown to us may be what is missing: wait until it says what it is.
        unknown = self._roster.num_unknown
        for group in self._groups:
            wanted = group.wanted
            missing = wanted.count - len(self._roster.active(*group.kind))
            counted = min(unknown, max(0, missing))
            unknown -= counted
            if missing - counted > 0 and now < group.not_before:
                key = f"{RETRY}/{wanted.role}/{wanted.model}"
                out.append(Wake(at=group.not_before, key=key, cause=RETRY))
                continue
            for _ in range(missing - counted):
                agent = self._roster.roomiest_agent(wanted.role)
                if agent is None:
                    return
                self._start(group, agent, now, out)

    def _start(self, group: Group, agent: Address, now: int, out: list[Effect]) -> None:
        wanted = group.wanted
        member = Member(
            executor=ExecutorId(self._next_executor),
            agent=agent,
            since=now,
            model=wanted.model,
            role=wanted.role,
        )
        self._add(member)
        message = StartExecutor(executor=member.executor, role=wanted.role, model=wanted.model)
        out.append(Send(to=agent, message=message, cause=_name(member)))

    def _tell(self, now: int, out: list[Effect]) -> None:
        current = self._picture()
        changed = current != self._told
        if self._told_at is None:
            self._told_at = now
        if not changed and now - self._told_at < int(self._config.repeat_s * 1e9):
            return
        self._told_at = now
        if changed:
            self._told = current
            self._version += 1
            standing = self.standing()
            values = (
                ("ready", float(standing.num_ready)),
                ("starting", float(standing.num_starting)),
                ("wanted", float(standing.num_wanted)),
            )
            labels = (("settled", str(self._settled).lower()), ("failed", standing.failed))
            out.append(Fact(name="cluster.members", values=values, labels=labels, cause="cluster"))
        out.extend(self._members_for(peer) for peer in self._audience)

    def _picture(self) -> Picture:
        return (self._roster.ready, self._settled, self._roster.hosts)

    def _members_for(self, peer: Address) -> Send:
        executors, settled, hosts = self._told
        message = Members(version=self._version, executors=executors, settled=settled, hosts=hosts)
        return Send(to=peer, message=message, cause="cluster")


def _name(member: Member) -> str:
    return f"executor/{member.executor}"
