"""Who there is: agents, and executors in whatever state, each on its agent."""

from dataclasses import dataclass

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId
from tercet.cluster_manager.states import MemberEvent, MemberState, next_state
from tercet.messages.wire import ExecutorReady, Role

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
    """Both None while only a report told of it: its agent knows no more before it is ready."""
    state: MemberState = MemberState.STARTING
    ready: ExecutorReady | None = None
    reason: str = ""
    """Why it is stopped."""

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
    def num_reported(self) -> int:
        """Agents that have told of all their executors."""
        return sum(agent.reported for agent in self.agents.values())

    @property
    def num_unknown(self) -> int:
        """Executors that start and that nobody here remembers having asked for."""
        members = self.members.values()
        return sum(m.state is MemberState.STARTING and m.model is None for m in members)

    def active(self, model: str, role: Role) -> list[Member]:
        """Those of a kind that serve or will, oldest first."""
        return [
            member
            for member in self.members.values()
            if member.model == model and member.role == role and member.state in ACTIVE
        ]

    def on_agent(self, agent: Address) -> list[Member]:
        return [member for member in self.members.values() if member.agent == agent]

    def roomiest_agent(self) -> Address | None:
        """Name the agent that can be asked and has the fewest executors; the first of equals."""
        best: Address | None = None
        least = 0
        for agent in self.agents.values():
            if agent.connected and agent.reported:
                count = len(self.on_agent(agent.address))
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
