"""Which peers executors and agents keep connections with: linked once, from the list of members."""

from tercet.base.ids import Address, ExecutorId
from tercet.messages.kv import Host, Reach
from tercet.messages.wire import ExecutorReady, Members, Role
from tercet.runtime.control import Begin
from tercet.runtime.endpoints import is_remote


class Links:
    """Of two executors that need each other the one with the lower id dials."""

    def __init__(self, executor: ExecutorId, reach: Reach) -> None:
        self._executor = executor
        self._reach = reach
        self._dialed: dict[str, None] = {}
        self._data: dict[str, str] = {}

    def data_of(self, host: str) -> str:
        """Give where a host's memories can be read over TCP; called by any thread."""
        return self._data.get(host, "")

    def news(self, members: Members) -> tuple[list[str], list[str]]:
        """Give (endpoints to dial now, endpoints to dial no more)."""
        self._data = {host.name: host.data for host in members.hosts if host.data}
        own = next((one for one in members.executors if one.executor == self._executor), None)
        wanted: dict[str, None] = {}
        for other in members.executors:
            if own is None or other.executor <= self._executor or not _paired(own, other):
                continue
            endpoint = self._endpoint(other.reach)
            if endpoint is not None:
                wanted[endpoint] = None
        dial = [name for name in wanted if name not in self._dialed]
        hang_up = [name for name in self._dialed if name not in wanted] if members.settled else []
        for name in hang_up:
            del self._dialed[name]
        self._dialed.update(dict.fromkeys(dial))
        return dial, hang_up

    def _endpoint(self, reach: Reach) -> str | None:
        """The first that can be dialed from here: names of this host's kernel, or TCP."""
        for endpoint in reach.endpoints:
            if reach.host == self._reach.host or is_remote(endpoint):
                return endpoint
        return None


def to_dial(agent: Address, hosts: tuple[Host, ...]) -> list[str]:
    """Give the endpoints of agents that this one dials: those of hosts whose names come later."""
    return [host.endpoints[0] for host in hosts if host.agent > agent and host.endpoints]


def host_of(begin: Begin, data: str) -> Host:
    """Give what the cluster is told of this host; `data`: where its memories are read."""
    endpoint = begin.public.get(begin.address)
    return Host(
        name=begin.address.removeprefix("agent/"),
        agent=begin.address,
        data=data,
        endpoints=() if endpoint is None else (endpoint,),
        pooled=begin.config.pool.on,
        weights=begin.config.weights,
    )


def _paired(one: ExecutorReady, other: ExecutorReady) -> bool:
    """Whether one computes prompts for the other, now or (a role just changed) a moment ago."""
    return one.model == other.model and Role.PREFILL in (one.role, other.role)
