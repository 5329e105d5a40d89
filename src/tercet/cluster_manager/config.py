"""What can be set of a cluster manager."""

from dataclasses import dataclass

from tercet.base.errors import Invalid
from tercet.messages.wire import Role


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Executors of one kind, and how many of them there shall be."""

    model: str
    """The name that jobs carry."""
    count: int = 1
    role: Role = Role.COLOCATED

    def __post_init__(self) -> None:
        if not 0 <= self.count <= 4096:
            raise Invalid(
                f"count is {self.count}; expected 0 to 4096 executors.", parameter="count"
            )


@dataclass(frozen=True, kw_only=True)
class ClusterManagerConfig:
    """The patience on the way to what is wanted; every value is checked when it is made."""

    num_agents: int = 1
    """So many agents report before the list of members is settled."""
    tick_s: float = 1.0
    """Target and members are compared at least this often."""
    repeat_s: float = 5.0
    """The list of members is sent again after this, in case one was lost."""
    backoff_s_min: float = 0.25
    """The wait after an executor that died before it was ready; doubles with every further one."""
    backoff_s_max: float = 30.0
    """The longest such wait."""
    failures_max: int = 5
    """Failed starts in a row after which the cluster says that it has failed (it tries on)."""
    start_timeout_s: float = 150.0
    """A start that its agent says nothing about for so long has failed."""
    agent_timeout_s: float = 15.0
    """An agent that is away for so long has lost its executors."""

    def __post_init__(self) -> None:
        for name in (
            "tick_s",
            "repeat_s",
            "backoff_s_min",
            "backoff_s_max",
            "start_timeout_s",
            "agent_timeout_s",
        ):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise Invalid(f"{name} is {value}; expected a positive number.", parameter=name)
        for name in ("num_agents", "failures_max"):
            value = getattr(self, name)
            if value < 1:
                raise Invalid(f"{name} is {value}; expected at least 1.", parameter=name)
