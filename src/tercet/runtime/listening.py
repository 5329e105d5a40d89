"""The sockets that a tree listens on; the supervisor holds them for whoever serves them next."""

import socket

from tercet.base.errors import Invalid

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
