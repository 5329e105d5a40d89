"""How a node agent's machine is made, as a record: its recording begins with it."""

from msgspec import Struct

from tercet.base.ids import Address
from tercet.messages.kv import Host
from tercet.node_agent.config import NodeAgentConfig
from tercet.node_agent.machine import NodeAgent
from tercet.pool.config import PoolConfig


class MakeNodeAgent(Struct, frozen=True, kw_only=True, tag=True):
    config: NodeAgentConfig
    address: Address
    next_executor: int
    image: str = ""
    host: Host | None = None
    pool: PoolConfig | None = None

    def make(self) -> NodeAgent:
        return NodeAgent(
            self.config,
            address=self.address,
            next_executor=self.next_executor,
            image=self.image,
            host=self.host,
            pool=self.pool,
        )
