"""A read-only picture of the cluster, for health, metrics and the start of a server."""

from msgspec import Struct


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
    failed: str
    """Why no executor of some group starts, in a sentence; empty while there is hope."""
