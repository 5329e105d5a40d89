"""How each machine is made, as a record: a recording begins with it, a replay makes it again."""

from typing import Any

import msgspec
from msgspec import Struct, msgpack

from tercet.base.ids import Address, ExecutorId
from tercet.base.machine import Machine
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.messages.effects import Effect
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.runtime.codec import Malformed
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor


class MakeJobExecutor(Struct, frozen=True, kw_only=True, tag=True):
    config: JobExecutorConfig
    address: Address
    seed: int

    def make(self) -> JobExecutor:
        return JobExecutor(self.config, address=self.address, rand=Rand(self.seed, "seeds"))


class MakeTaskExecutor(Struct, frozen=True, kw_only=True, tag=True):
    config: TaskExecutorConfig
    executor: ExecutorId
    capacity: Capacity
    scheduling: SchedulingConfig

    def make(self) -> TaskExecutor:
        return TaskExecutor(
            self.config,
            executor=self.executor,
            capacity=self.capacity,
            scheduling=self.scheduling,
        )


class MakeNodeAgent(Struct, frozen=True, kw_only=True, tag=True):
    config: NodeAgentConfig
    address: Address
    next_executor: int

    def make(self) -> NodeAgent:
        return NodeAgent(self.config, address=self.address, next_executor=self.next_executor)


class MakeClusterManager(Struct, frozen=True, kw_only=True, tag=True):
    config: ClusterManagerConfig

    def make(self) -> ClusterManager:
        return ClusterManager(self.config)


Construction = MakeJobExecutor | MakeTaskExecutor | MakeNodeAgent | MakeClusterManager
_decoder: msgpack.Decoder[Any] = msgpack.Decoder(Construction)


def read_construction(data: bytes) -> Construction:
    """Read the beginning of a recording; raise `Malformed`."""
    try:
        construction: Construction = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from error
    return construction


def make_machine(construction: Construction) -> Machine[Any, Effect]:
    """Give a fresh machine."""
    return construction.make()
