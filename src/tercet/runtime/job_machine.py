"""How a job executor's machine is made, as a record: its recording begins with it."""

from msgspec import Struct

from tercet.base.ids import Address
from tercet.base.rand import Rand
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor


class MakeJobExecutor(Struct, frozen=True, kw_only=True, tag=True):
    config: JobExecutorConfig
    address: Address
    seed: int

    def make(self) -> JobExecutor:
        return JobExecutor(self.config, address=self.address, rand=Rand(self.seed, "seeds"))
