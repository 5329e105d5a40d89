"""How a front's machines are made, as records: recordings begin with them."""

from msgspec import Struct

from tercet.base.ids import Address
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor


class MakeJobExecutor(Struct, frozen=True, kw_only=True, tag=True):
    config: JobExecutorConfig
    address: Address
    seed: int

    def make(self) -> JobExecutor:
        return JobExecutor(self.config, address=self.address, rand=Rand(self.seed, "seeds"))


class MakeClusterManager(Struct, frozen=True, kw_only=True, tag=True):
    config: ClusterManagerConfig
    groups: tuple[GroupConfig, ...]

    def make(self) -> ClusterManager:
        return ClusterManager(self.config, groups=self.groups)
