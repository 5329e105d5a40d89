"""The memories of a host as its agent has them: mapped, moved into, served to other hosts.

arenas of executors    mapped read-only while they live (and while they are sealed)
segments of the pool   its own, lent to executors
images                 of models, whole or coming
"""

import asyncio
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tercet.base.ids import ExecutorId
from tercet.engine.memory import CLOCK_AT, LIVES_AT, ArenaLayout
from tercet.messages.kv import Host
from tercet.runtime.config import RuntimeConfig
from tercet.runtime.mover import Mover, MoverEvent
from tercet.runtime.pool_memory import PoolMemory
from tercet.runtime.residents import Resident
from tercet.wires.contract import Fence, Region, Wire
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_server import Limits, TcpServer


@dataclass
class _Hosts:
    """Where the memories of other hosts can be read."""

    data: dict[str, str] = field(default_factory=dict)

    def of(self, host: str) -> str:
        return self.data.get(host, "")


class AgentMemories:
    """One for an agent; `pool` is the host's share, if it keeps one."""

    def __init__(
        self,
        host: str,
        deliver: Callable[[MoverEvent], None],
        *,
        secret: bytes,
        loop: asyncio.AbstractEventLoop,
        pool: PoolMemory | None = None,
    ) -> None:
        self.regions = Regions()
        self._host = host
        self._secret = secret
        self._hosts = _Hosts()
        wires: list[Wire] = [SharedWire(self.regions)]
        disk = None if pool is None else pool.wire(self.regions)
        if disk is not None:
            wires.append(disk)
        wires.append(TcpWire(self.regions, self._hosts.of, secret=secret))
        self.mover = Mover(self.regions, wires, deliver, loop=loop)
        self._arenas: dict[ExecutorId, mmap.mmap] = {}
        for memory, (_, page) in () if pool is None else pool.segments.items():
            self._add(memory, page)
        self._server: TcpServer | None = None

    def serve(self, runtime: RuntimeConfig) -> str:
        """Let other hosts read, if there may be any; gives where, as `address:port`, or nothing."""
        address = runtime.data_address
        if address is None:
            return ""
        limits = Limits(bytes_per_s=runtime.data_bytes_per_s, latency_s=runtime.data_latency_s)
        self._server = TcpServer(self.regions, self._secret, limits=limits)
        return f"{address}:{self._server.serve(address)}"

    def hosts(self, hosts: tuple[Host, ...]) -> None:
        """Take note where other hosts' memories can be read."""
        self._hosts.data = {host.name: host.data for host in hosts if host.data}

    def add_arena(self, resident: Resident, layout: ArenaLayout) -> None:
        """An executor serves: its arena can be read."""
        descriptor = resident.parts.get("arena")
        if descriptor is None or resident.executor in self._arenas:
            return
        page = mmap.mmap(descriptor, layout.size_bytes, prot=mmap.PROT_READ)
        self._arenas[resident.executor] = page
        address = np.frombuffer(page, np.uint8).ctypes.data
        fence = Fence(lives=address + LIVES_AT, units=layout.num_blocks, clock=address + CLOCK_AT)
        self.regions.add(
            Region(
                memory=self.arena(resident.executor),
                address=address,
                size=layout.size_bytes,
                fence=fence,
            )
        )

    def remove_arena(self, executor: ExecutorId) -> None:
        """An executor is gone: nobody begins to read its arena; who reads it ends well."""
        page = self._arenas.pop(executor, None)
        if page is not None:
            self.regions.remove(self.arena(executor), lambda: _forget(page))

    def _add(self, memory: str, page: mmap.mmap) -> None:
        address = np.frombuffer(page, np.uint8).ctypes.data
        region = Region(memory=memory, address=address, size=len(page), writable=True)
        self.regions.add(region)

    def arena(self, executor: ExecutorId) -> str:
        return f"{self._host}/kv/{executor}"


def _forget(page: mmap.mmap) -> None:
    """The mapping goes with its last reference."""
    del page
