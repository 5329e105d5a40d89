"""A read-only picture of the cluster, for health, metrics and the start of a server."""

from msgspec import Struct

from tercet.base.ids import Address, ExecutorId
from tercet.messages.kv import Host
from tercet.messages.wire import Role


class MemberStanding(Struct, frozen=True, kw_only=True):
    """One executor, as the cluster manager sees it."""

    executor: ExecutorId
    agent: Address
    state: str
    role: Role | None
    """What it shall serve as."""
    serves_as: Role | None
    """What it said last; differs from `role` while it is told to change."""


class ClusterStanding(Struct, frozen=True, kw_only=True):
    """Counts at one moment."""

    settled: bool
    """All agents have reported: what is absent is lost."""
    num_agents: int
    """Agents that are connected."""
    num_wanted: int
    num_ready: int
    num_starting: int
    num_stopping: int
    wanted: tuple[tuple[str, Role, int], ...] = ()
    """Model, role and how many there shall be."""
    members: tuple[MemberStanding, ...] = ()
    hosts: tuple[Host, ...] = ()
    failed: str
    """Why no executor of some group starts, in a sentence; empty while there is hope."""
