"""The sockets that a tree listens on; the supervisor holds them for whoever serves them next.

http, front/0, cluster, agent/<host>      of the host itself: TCP for HTTP, abstract names else
.../tcp                                   the same machines for other hosts, if there may be any
"""

import secrets
import socket

from tercet.base.errors import Invalid
from tercet.base.ids import Address
from tercet.runtime.config import RuntimeConfig
from tercet.runtime.endpoints import endpoint_of, host_and_port, listen, tcp, unix
from tercet.runtime.place import Place

FRONT, CLUSTER = Address("front/0"), Address("cluster")
REMOTE = "/tcp"
_HTTP_BACKLOG = 2048


def listen_http(host: str, port: int) -> socket.socket:
    """Give a socket that takes connections for HTTP; `Invalid` says why it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_HTTP_BACKLOG)
    except OSError as error:
        raise Invalid(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.", parameter="port"
        ) from error


class Listeners:
    """All of one tree."""

    def __init__(self, runtime: RuntimeConfig, place: Place) -> None:
        self._runtime = runtime
        self._place = place
        self._agent = Address(f"agent/{place.host}")
        self._sockets: dict[str, socket.socket] = {}
        self.names: dict[Address, str] = {}
        """Where processes of this host dial each machine."""
        self.public: dict[Address, str] = {}
        """Where other hosts dial those of this one."""

    def open(self) -> None:
        """Listen everywhere; `Invalid` says where that is not possible."""
        unique = secrets.token_hex(8)
        own = [self._agent]
        if self._place.joined:
            self.names.update(self._place.endpoints)
        else:
            self._sockets["http"] = listen_http(self._runtime.host, self._runtime.port)
            own += [FRONT, CLUSTER]
        for address in own:
            self.names[address] = unix(f"tercet-{unique}-{address}")
            self._sockets[address] = listen(self.names[address])
        if self._runtime.cluster_address is not None:
            host, port = host_and_port(self._runtime.cluster_address, parameter="cluster-address")
            self._open_remote(CLUSTER, host, port)
            self._open_remote(FRONT, host, port + 1 if port else 0)
            self._open_remote(self._agent, host, 0)
        elif self._place.joined and self._runtime.data_address is not None:
            self._open_remote(self._agent, self._runtime.data_address, 0)

    def _open_remote(self, address: Address, host: str, port: int) -> None:
        listener = listen(tcp(host, port))
        self._sockets[address + REMOTE] = listener
        self.public[address] = endpoint_of(listener, host)

    def address(self, kind: str) -> Address:
        """Give where the machine of a kind of process lives."""
        return {"front": FRONT, "agent": self._agent}.get(kind, Address(f"{kind}/local"))

    def of_front(self) -> dict[str, int]:
        """Give the front's descriptors, by name."""
        return self._parts("http", FRONT, CLUSTER, FRONT + REMOTE, CLUSTER + REMOTE)

    def of_agent(self) -> dict[str, int]:
        """Give the agent's."""
        return self._parts(self._agent, self._agent + REMOTE)

    def _parts(self, *names: str) -> dict[str, int]:
        return {name: self._sockets[name].fileno() for name in names if name in self._sockets}

    def url(self) -> str:
        """Give where HTTP is answered."""
        host, port = self._sockets["http"].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        for listener in self._sockets.values():
            listener.close()
