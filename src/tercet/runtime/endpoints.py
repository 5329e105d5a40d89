"""Where machines take connections: `unix:<abstract name>` on a host, `tcp:<address>:<port>`."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from pathlib import Path

from tercet.base.errors import Invalid

UNIX, TCP = "unix:", "tcp:"
CONNECT_S = 3.0
"""A host that does not answer by then is dialed anew."""
_BACKLOG = 512
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT, _PORTS_END = 10_000, 65_536


def unix(name: str) -> str:
    return UNIX + name


def tcp(address: str, port: int) -> str:
    return f"{TCP}{address}:{port}"


def host_and_port(text: str, *, parameter: str) -> tuple[str, int]:
    """Read `HOST:PORT` that a person gave; IPv6 addresses stand in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise Invalid(f"{text!r} is not of the form HOST:PORT.", parameter=parameter)
    return host, int(port)


def is_remote(endpoint: str) -> bool:
    """Whether other hosts can dial it, and silence means nothing good."""
    return endpoint.startswith(TCP)


def listen(endpoint: str) -> socket.socket:
    """Give a socket that takes connections there; port 0 is any free one. An abstract name is no
    file: it goes with its last holder.
    """
    if not is_remote(endpoint):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("\0" + endpoint.removeprefix(UNIX))
        listener.listen(_BACKLOG)
        return listener
    host, port = host_and_port(endpoint.removeprefix(TCP), parameter="address")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Invalid(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.", parameter="address"
        ) from error


def free_ports(address: str, count: int = 1) -> int:
    """Give a port that is free there, with the `count` - 1 behind it; `Invalid` if none is found.

    If there are others, none of those that the kernel gives to whoever connects: it could give one
    away, as the near end of some connection, before we listen there.
    """
    try:
        low, high = (int(one) for one in _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999
    ports = range(_FIRST_PORT, _PORTS_END - count + 1)
    drawn = random.sample(ports, len(ports))
    for port in sorted(drawn, key=lambda port: low < port + count and port <= high):
        with contextlib.ExitStack() as held:
            try:
                for one in range(port, port + count):
                    held.enter_context(socket.create_server((address, one)))
            except OSError:
                continue
            return port
    raise Invalid(f"No {count} free ports in a row on {address}.", parameter="address")


def endpoint_of(listener: socket.socket, address: str) -> str:
    """Give where a listening TCP socket is reached under an address of its host."""
    return tcp(address, listener.getsockname()[1])


async def connect(endpoint: str, make: Callable[[], asyncio.BaseProtocol]) -> None:
    """Connect a protocol with whoever listens there; `OSError` if nobody does."""
    loop = asyncio.get_running_loop()
    if not is_remote(endpoint):
        await loop.create_unix_connection(make, sock=_dialed(endpoint.removeprefix(UNIX)))
        return
    host, port = host_and_port(endpoint.removeprefix(TCP), parameter="address")
    async with asyncio.timeout(CONNECT_S):
        await loop.create_connection(make, host, port)


def _dialed(name: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.setblocking(False)
        stream.connect("\0" + name)
    except OSError:
        stream.close()
        raise
    return stream
