"""Which peers an executor keeps connections with: linked once, from the list of members."""

from tercet.base.ids import ExecutorId
from tercet.messages.kv import Reach
from tercet.messages.wire import ExecutorReady, Members, Role


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
            if reach.host == self._reach.host or endpoint.startswith("tcp:"):
                return endpoint
        return None


def _paired(one: ExecutorReady, other: ExecutorReady) -> bool:
    """Whether one computes prompts for the other, now or (a role just changed) a moment ago."""
    return one.model == other.model and Role.PREFILL in (one.role, other.role)
