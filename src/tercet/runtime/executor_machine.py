"""How a task executor's machine is made, as a record: its recording begins with it."""

from msgspec import Struct

from tercet.base.ids import ExecutorId
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor
from tercet.transfer.config import TransferConfig


class MakeTaskExecutor(Struct, frozen=True, kw_only=True, tag=True):
    config: TaskExecutorConfig
    executor: ExecutorId
    capacity: Capacity
    scheduling: SchedulingConfig
    transfer: TransferConfig = TransferConfig()

    def make(self) -> TaskExecutor:
        return TaskExecutor(
            self.config,
            executor=self.executor,
            capacity=self.capacity,
            scheduling=self.scheduling,
            transfer=self.transfer,
        )
