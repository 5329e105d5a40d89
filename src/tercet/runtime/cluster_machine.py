"""How a cluster manager's machine is made, as a record: its recording begins with it."""

from msgspec import Struct

from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager


class MakeClusterManager(Struct, frozen=True, kw_only=True, tag=True):
    config: ClusterManagerConfig
    groups: tuple[GroupConfig, ...]
    weights: str = ""

    def make(self) -> ClusterManager:
        return ClusterManager(self.config, groups=self.groups, weights=self.weights)
