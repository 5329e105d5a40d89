"""Who there is: agents, and executors in whatever state, each on its agent."""

from dataclasses import dataclass

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.standing import MemberStanding
from tercet.cluster_manager.states import MemberEvent, MemberState, next_state
from tercet.messages.kv import Host
from tercet.messages.wire import AgentReport, ExecutorReady, Role

ACTIVE = (MemberState.STARTING, MemberState.READY)


@dataclass(slots=True)
class Member:
    """One executor, from the moment it was asked for or reported until it is gone."""

    executor: ExecutorId
    agent: Address
    since: int
    """When it was asked for or first reported."""
    model: str | None = None
    role: Role | None = None
    """What it shall serve as, whatever it said last. Both None while only a report told of it:
    its agent knows no more before it is ready."""
    state: MemberState = MemberState.STARTING
    ready: ExecutorReady | None = None
    told: Role | None = None
    """The role that it was last told to change to."""
    reason: str = ""
    """Why it is stopped."""

    @property
    def miscast(self) -> bool:
        """Whether it serves in another role than it shall."""
        ready = self.ready
        return self.state is MemberState.READY and ready is not None and ready.role != self.role

    def step(self, event: MemberEvent) -> None:
        self.state = next_state(self.state, event, self.executor)


@dataclass(slots=True)
class Agent:
    """One host's agent."""

    address: Address
    epoch: Epoch
    connected: bool = True
    reported: bool = False
    """It told of all its executors since it (re)joined: only then may it be asked for more."""
    away_since: int = 0
    host: Host | None = None
    """What it last told of its host; kept while it is away, for a while only a restart."""


def other_weights(report: AgentReport, expected: str) -> str:
    """Say in a sentence that a host serves something else than the cluster; nothing if not."""
    found = "" if report.host is None else report.host.weights
    if found == expected:
        return ""
    name = report.agent.removeprefix("agent/")
    return (
        f"Host {name} has other weights than the cluster: {found or 'it says none'}, expected "
        f"{expected}. Join again to serve what the cluster serves now."
    )


class Roster:
    """Every agent and member, with the questions that the manager asks of them."""

    def __init__(self) -> None:
        self.agents: dict[Address, Agent] = {}
        self.members: dict[ExecutorId, Member] = {}

    @property
    def ready(self) -> tuple[ExecutorReady, ...]:
        """Those that can take tasks, by id."""
        ready = [
            member.ready
            for member in self.members.values()
            if member.state is MemberState.READY and member.ready is not None
        ]
        return tuple(sorted(ready, key=lambda one: one.executor))

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host whose agent is here or may be back, by name."""
        hosts = [agent.host for agent in self.agents.values() if agent.host is not None]
        return tuple(sorted(hosts, key=lambda one: one.name))

    @property
    def num_reported(self) -> int:
        """Agents that have told of all their executors."""
        return sum(agent.reported for agent in self.agents.values())

    @property
    def num_unknown(self) -> int:
        """Executors that start and that nobody here remembers having asked for."""
        members = self.members.values()
        return sum(m.state is MemberState.STARTING and m.model is None for m in members)

    def start_waits(self, executor: ExecutorId, now: int) -> None:
        """The patience with a start begins when what it waits for is there."""
        member = self.members.get(executor)
        if member is not None and member.state is MemberState.STARTING:
            member.since = now

    def active(self, model: str, role: Role) -> list[Member]:
        """Those of a kind that serve or will, oldest first."""
        return [
            member
            for member in self.members.values()
            if member.model == model and member.role == role and member.state in ACTIVE
        ]

    def serving(self, model: str, role: Role) -> list[Member]:
        """Those of a kind that serve now, oldest first."""
        found = [m for m in self.active(model, role) if m.state is MemberState.READY]
        return sorted(found, key=lambda member: member.executor)

    @property
    def standings(self) -> tuple[MemberStanding, ...]:
        """Every member, by id, for who looks at the cluster."""
        return tuple(
            MemberStanding(
                executor=member.executor,
                agent=member.agent,
                state=member.state.value,
                role=member.role,
                serves_as=None if member.ready is None else member.ready.role,
            )
            for member in sorted(self.members.values(), key=lambda member: member.executor)
        )

    def on_agent(self, agent: Address) -> list[Member]:
        return [member for member in self.members.values() if member.agent == agent]

    def roomiest_agent(self, role: Role) -> Address | None:
        """Name the agent that can be asked and has the fewest executors, among those the one with
        the fewest of this role; the first of equals.
        """
        best: Address | None = None
        least = (0, 0)
        for agent in self.agents.values():
            if agent.connected and agent.reported:
                here = self.on_agent(agent.address)
                count = (len(here), sum(member.role == role for member in here))
                if best is None or count < least:
                    best, least = agent.address, count
        return best

    def check(self) -> None:
        """Raise unless every member's record fits its state."""
        for number, member in self.members.items():
            name = f"member {number}"
            must(number == member.executor, f"{name} is filed as another")
            must(member.state is not MemberState.GONE, f"{name} is gone and still kept")
            must(member.agent in self.agents, f"{name} is on {member.agent}, which is unknown")
            must(
                member.state is not MemberState.READY or member.ready is not None,
                f"{name} is ready but never said so",
            )
