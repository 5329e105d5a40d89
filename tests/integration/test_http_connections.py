"""What clients do with connections besides asking: queue, offer, dribble, take nothing.

None of it may keep a job that nobody waits for, or a connection that is of no use.
"""

import json
import socket
import time

import pytest
from echo_server import echo_server

from tercet.api.config import ApiConfig

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def slow():
    """A server whose answers take for ever, a token each 5 ms."""
    with echo_server(ApiConfig(), pause_s=0.005) as (address, service):
        yield address, service


@pytest.fixture(scope="module")
def hasty():
    """A server of little patience with clients."""
    config = ApiConfig(keep_alive_s=1, write_timeout_s=0.5, head_bytes_max=8192)
    with echo_server(config, per_piece=64) as (address, service):
        yield address, service


def connect(address):
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.settimeout(PATIENCE_S)
    return connection


def request(*, head=b"", **fields):
    given = {"model": "tiny", "prompt": "ab", "max_tokens": 2, "ignore_eos": True, **fields}
    body = json.dumps(given).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        + head
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.01)


def read_all(connection):
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "behind",
    [
        [],
        [request()],
        [request()] * 5,
        [request(prompt="a" * 90_000)],
        [b"POST /v1/comp"],
        [request()[:-5]],
    ],
    ids=["nothing", "another", "five", "a large one", "half a head", "half a body"],
)
def test_a_client_that_leaves_frees_its_job_whatever_it_sent_behind_it(slow, stream, behind):
    """llama.cpp#24496, #13262: a disconnect that is not noticed, as the socket is not read."""
    address, service = slow
    submitted = len(service.jobs)
    with connect(address) as connection:
        connection.sendall(request(max_tokens=2000, stream=stream))
        until(lambda: len(service.jobs) > submitted, "the job begins")
        for part in behind:
            connection.sendall(part)
    until(lambda: not service.num_running, "nothing runs")
    assert len(service.jobs) == submitted + 1, "what waited behind is never begun"
    assert service.cancelled[-1] == service.jobs[-1].id


@pytest.mark.parametrize("stream", [False, True])
def test_garbage_behind_a_request_never_gets_into_its_answer(slow, stream):
    address, service = slow
    submitted = len(service.jobs)
    with connect(address) as connection:
        connection.sendall(request(max_tokens=2000, stream=stream))
        if stream:
            assert connection.recv(16)
        until(lambda: len(service.jobs) > submitted, "the job begins")
        connection.sendall(b"garbage\r\n\r\n")
        assert b"HTTP/1.1 400" not in read_all(connection)
    until(lambda: not service.num_running, "nothing runs")


OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
}


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_an_offer_of_another_protocol_is_passed_over(hasty, offer, size):
    """Java's client offers HTTP/2 with every first request, a body's too: it was lost."""
    address, _ = hasty
    whole = request(head=OFFERS[offer]) * 2 + request()
    with connect(address) as connection:
        for at in range(0, len(whole), size):
            connection.sendall(whole[at : at + size])
        data = b""
        while data.count(b'"text":"ab"') < 3:
            data += connection.recv(65536)
    assert data.count(b"HTTP/1.1 200") == 3


def test_an_offer_with_a_chunked_body_is_read_too(hasty):
    address, _ = hasty
    body = request().partition(b"\r\n\r\n")[2]
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n" + OFFERS["h2c"] + b"\r\n"
    )
    with connect(address) as connection:
        connection.sendall(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("n", [1, 100])
def test_a_client_that_takes_nothing_is_cut_and_its_job_ends(hasty, n):
    """vllm#50150: what is not taken would be kept, and the connection with it, for ever."""
    address, service = hasty
    with connect(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request(max_tokens=2000, stream=True, n=n, logprobs=20))
        until(lambda: service.num_running, "it runs")
        before = len(service.cancelled)
        until(lambda: not service.num_running, "it ends")
        until(lambda: _cut(connection), "it is cut")
        assert n == 1 or len(service.cancelled) == before + 1


def _cut(connection):
    """Whether the other side is gone, without taking anything from it."""
    try:
        connection.send(b"\r\n")
    except OSError:
        return True
    return False


def test_a_client_that_takes_slowly_gets_everything(hasty):
    address, _ = hasty
    with connect(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request(max_tokens=700, stream=True, logprobs=20))
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            chunk = connection.recv(200_000)
            assert chunk, "cut"
            data += chunk
            time.sleep(0.02)
    assert b"data: [DONE]" in data


def test_trailers_are_bounded(hasty):
    address, _ = hasty
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    head += b"Content-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n"
    with connect(address) as connection:
        connection.sendall(head + b"a: b\r\n" * 2000)
        data = read_all(connection)
    assert b"trailers are longer" in data


@pytest.mark.parametrize("dribble", [b" ", b"\r\n"])
def test_what_follows_an_answer_and_is_no_request_does_not_keep_a_connection(hasty, dribble):
    """The rest of a body that was refused at its head, or blank lines, byte by byte."""
    address, _ = hasty
    refused = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        b"Content-Length: 100000\r\n\r\n"
    )
    with connect(address) as connection:
        connection.sendall(refused if dribble == b" " else request())
        assert connection.recv(65536).startswith(b"HTTP/1.1")

        def closed():
            try:
                connection.sendall(dribble)
            except OSError:
                return True
            time.sleep(0.05)
            return False

        until(closed, "the connection is closed")


def test_many_idle_connections_are_in_nobodys_way(slow):
    address, service = slow
    idle = [connect(address) for _ in range(500)]
    for index, connection in enumerate(idle):
        connection.sendall([b"", b"GET /health HTTP/1.1\r\n", b"P"][index % 3])
    with connect(address) as connection:
        connection.sendall(request())
        answer = b""
        while b'"text":"ab"' not in answer:
            piece = connection.recv(65536)
            assert piece, f"the answer ended without its text: {answer!r}"
            answer += piece
    for connection in idle:
        connection.close()
    assert not service.num_running
