"""What arrives on a socket and is no good request: bounded, answered, never the end of it all."""

import json
import socket

import httpx
import pytest
from echo_server import echo_server

from tercet.api.config import ApiConfig

BODY = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 2}).encode()
HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n" % len(BODY)
)


@pytest.fixture(scope="module")
def address():
    config = ApiConfig(head_bytes_max=8192, head_timeout_s=0.5, body_timeout_s=0.5)
    with echo_server(config) as (address, _):
        yield address


def connect(address):
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.settimeout(10)
    return connection


def talk(address, *sent):
    """Send, then read until the server closes or an answer is whole."""
    with connect(address) as connection:
        for part in sent:
            connection.sendall(part)
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
            if b"\r\n\r\n" in data and data.endswith(b"}"):
                break
        return data


@pytest.fixture(autouse=True)
def _still_serves(address):
    yield
    with httpx.Client(base_url=address) as client:
        answer = client.post(
            "/v1/completions", content=BODY, headers={"content-type": "application/json"}
        )
    assert answer.json()["choices"][0]["text"] == "ab"


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\nbad header\r\n\r\n",
    ],
)
def test_garbage_is_400(address, garbage):
    data = talk(address, garbage)
    assert data.startswith(b"HTTP/1.1 400")
    assert json.loads(data.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


def test_a_head_that_does_not_end_is_400(address):
    for filling in (b"x: " + b"a" * 20_000, b"x: y\r\n" * 4000):
        try:
            data = talk(address, b"GET /health HTTP/1.1\r\n", filling)
        except (ConnectionResetError, BrokenPipeError):
            continue  # closed while we still wrote
        assert data.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_come_closes_the_connection(address, sent):
    assert talk(address, sent) == b""


def test_a_second_head_that_does_not_come_closes_the_connection(address):
    data = talk(address, HEAD + b"\r\n" + BODY)
    assert data.startswith(b"HTTP/1.1 200")
    with connect(address) as connection:
        connection.sendall(HEAD + b"\r\n" + BODY)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"POST /v1/comp")
        while chunk := connection.recv(65536):
            assert b"HTTP/1.1" not in chunk


def test_a_body_that_does_not_come_is_408(address):
    data = talk(address, HEAD + b"\r\n" + BODY[:10])
    assert data.startswith(b"HTTP/1.1 408")


def test_a_chunked_body_is_read(address):
    head = HEAD.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
    parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:])]
    data = talk(address, head, *parts, b"0\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 200")


def test_requests_on_one_connection_are_answered_in_order(address):
    with connect(address) as connection:
        connection.sendall((HEAD + b"\r\n" + BODY) * 3)
        data = b""
        while data.count(b"HTTP/1.1 200") < 3 or not data.endswith(b"}"):
            data += connection.recv(65536)
    assert data.count(b'"text":"ab"') == 3
