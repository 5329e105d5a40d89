"""The sockets that a tree listens on; the supervisor holds them for whoever serves them next."""

import socket

from tercet.base.errors import Invalid

_UNIX_BACKLOG = 512
_HTTP_BACKLOG = 2048


def listen(name: str) -> socket.socket:
    """Give a socket that listens in the abstract namespace: no file, gone with its last holder."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + name)
    listener.listen(_UNIX_BACKLOG)
    return listener


def listen_http(host: str, port: int) -> socket.socket:
    """Give a socket that takes connections for HTTP; `Invalid` says why it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_HTTP_BACKLOG)
    except OSError as error:
        raise Invalid(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.", parameter="port"
        ) from error
