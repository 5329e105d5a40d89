"""The TCP wire against slow, broken and hostile ends."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from wire_cases import SECRET, STRIDE, Rig, i4, move, tcp, u4

from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires import tcp_pool
from tercet.wires.contract import WireFailure
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_protocol import LENGTH, Request, encode, introduce, prepare, receive_some
from tercet.wires.tcp_server import Bounds, Limits, TcpServer

BIG = 64 << 10
A_REQUEST = encode(Request(Strip("far", 0, 0, 0, b""), 256, 0, 0, 0, summed=True))
NESTED = b"\x97" + A_REQUEST[1:] + b"\x91" * 2000 + b"\xc0"
"""A request with one field more, which is nested."""


def fails(wire, one) -> MoveEnd:
    with pytest.raises(WireFailure) as failure:
        wire.carry(one)
    return failure.value.end


def whole(rig: Rig, units: int = 1, **fields):
    source = rig.strip(i4(*range(units)), rig.stride)
    return move(source, rig.whole(units * rig.stride), **fields)


class Between:
    """A proxy that may change, hold or cut what the server says, by its number of bytes."""

    def __init__(self, port: int, *, cut_at=None, flip_at=None, hold_at=None) -> None:
        self._port, self.cut_at, self.flip_at, self.hold_at = port, cut_at, flip_at, hold_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._ends += [near, far]
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, target, answers=False) -> None:
        count = 0
        try:
            while said := bytearray(source.recv(4096)):
                begin, count = count, count + len(said)
                if answers and self.flip_at is not None and begin <= self.flip_at < count:
                    said[self.flip_at - begin] ^= 1
                if answers and self.hold_at is not None and count > self.hold_at:
                    time.sleep(1)
                target.sendall(said)
                if answers and self.cut_at is not None and count > self.cut_at:
                    break
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in self._ends:
            end.close()


@pytest.fixture
def through():
    """A wire whose answers go through a proxy."""
    ends = []

    def make(rig, **faults):
        server = TcpServer(rig.sources, SECRET)
        between = Between(server.serve(), **faults)
        wire = TcpWire(rig.regions, lambda _: between.address, secret=SECRET)
        ends.extend([wire.close, server.close, between.close])
        return wire

    yield make
    for end in ends:
        end()


def test_a_flipped_bit_on_the_way_is_corrupt_with_and_without_a_check(through) -> None:
    rig = Rig(stride=BIG)
    for check in (None, rig.check(rig.strip(i4(0), BIG), 256)):
        wire = through(rig, flip_at=20_000)
        assert fails(wire, whole(rig, check=check)) is MoveEnd.CORRUPT


def test_a_connection_cut_in_mid_block_is_gone_at_once(through) -> None:
    rig = Rig(stride=BIG)
    started = time.monotonic()
    assert fails(through(rig, cut_at=30_000), whole(rig)) is MoveEnd.GONE
    assert time.monotonic() - started < 2


def test_a_slow_link_is_late(through) -> None:
    rig = Rig(stride=BIG)
    wire = through(rig, hold_at=30_000)
    until = time.monotonic_ns() + 300_000_000
    assert fails(wire, whole(rig, deadline=until)) is MoveEnd.LATE
    assert time.monotonic_ns() - until < 400_000_000


def test_a_host_that_is_stopped_is_late_at_the_deadline() -> None:
    rig = Rig()
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # its kernel still accepts
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        wire = TcpWire(rig.regions, lambda _: address, secret=SECRET)
        until = time.monotonic_ns() + 200_000_000
        assert fails(wire, whole(rig, deadline=until)) is MoveEnd.LATE
        assert time.monotonic_ns() - until < 200_000_000
        wire.close()


def test_after_it_failed_no_byte_of_the_target_changes(through) -> None:
    rig = Rig(stride=BIG)
    wire = through(rig, hold_at=30_000)
    assert fails(wire, whole(rig, deadline=time.monotonic_ns() + 200_000_000)) is MoveEnd.LATE
    before = rig.target.copy()
    time.sleep(1.3)
    assert np.array_equal(rig.target, before)


def test_a_wrong_secret_reads_nothing() -> None:
    rig = Rig()
    opened = tcp(rig, secret=b"another")
    assert fails(opened.wire, whole(rig)) is MoveEnd.GONE
    assert not rig.target.any()
    opened.close()


def test_a_server_that_was_restarted_is_found_again() -> None:
    rig = Rig()
    server = TcpServer(rig.sources, SECRET)
    port = server.serve()
    wire = TcpWire(rig.regions, lambda _: f"127.0.0.1:{port}", secret=SECRET)
    wire.carry(whole(rig))
    server.close()
    assert fails(wire, whole(rig)) is MoveEnd.GONE
    again = TcpServer(rig.sources, SECRET)
    again.serve(port=port)
    wire.carry(whole(rig))
    wire.close()
    again.close()


def test_connections_that_idled_away_are_no_failure() -> None:
    rig = Rig()
    opened = tcp(rig, bounds=Bounds(idle_s=0.2))
    opened.wire.carry(whole(rig))
    time.sleep(0.6)
    opened.wire.carry(whole(rig))
    opened.close()


def test_no_connection_is_kept_with_a_server_that_is_gone() -> None:
    rig = Rig()
    addresses: list[str] = []
    wire = TcpWire(rig.regions, lambda _: addresses[-1], secret=SECRET)
    open_files = []
    for _ in range(4):  # each time at another port
        server = TcpServer(rig.sources, SECRET)
        addresses.append(f"127.0.0.1:{server.serve()}")
        wire.carry(whole(rig))
        server.close()
        time.sleep(0.1)
        open_files.append(len(list(Path("/proc/self/fd").iterdir())))
    assert open_files[-1] <= open_files[0]
    wire.close()


def test_no_connection_idles_for_long(monkeypatch) -> None:
    rig = Rig()
    servers = [TcpServer(rig.sources, SECRET) for _ in range(2)]
    ports = {str(number): server.serve() for number, server in enumerate(servers)}
    monkeypatch.setattr(tcp_pool, "IDLE_NS", 100_000_000)
    connections = tcp_pool.Connections(SECRET)
    until = time.monotonic_ns() + 10**10
    one, other = (f"127.0.0.1:{port}" for port in ports.values())
    old, _ = connections.take(one, until)
    connections.give(one, old)
    kept, _ = connections.take(other, until)
    assert old.fileno() >= 0
    time.sleep(0.15)
    connections.give(other, kept)
    assert old.fileno() < 0
    assert connections.take(other, until) == (kept, True)
    connections.drop(other, kept)
    for server in servers:
        server.close()


def test_a_life_that_begins_while_bytes_are_sent_is_stale() -> None:
    rig = Rig(stride=BIG)
    opened = tcp(rig, limits=Limits(bytes_per_s=4 * BIG))
    threading.Timer(0.1, lambda: rig.lives.__setitem__(0, 7)).start()
    source = rig.strip(i4(0), BIG, lives=u4(100))
    assert fails(opened.wire, move(source, rig.whole(BIG))) is MoveEnd.STALE
    opened.close()


def test_a_link_can_be_made_slow() -> None:
    rig = Rig(stride=BIG)
    opened = tcp(rig, limits=Limits(bytes_per_s=20 * BIG, latency_s=0.02))
    started = time.monotonic()
    opened.wire.carry(whole(rig, units=4))
    assert 0.2 < time.monotonic() - started < 0.6
    opened.close()


# hostile clients


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    prepare(connection)
    introduce(connection, SECRET)
    return connection


def cut_off(connection: socket.socket, within: float = 2.0) -> bool:
    connection.settimeout(within)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.fixture
def served():
    rig = Rig()
    bounds = Bounds(connections=3, half_request_s=0.2, stall_s=0.5, request_bytes=8 * STRIDE)
    server = TcpServer(rig.sources, SECRET, bounds=bounds)
    yield rig, server.serve()
    server.close()


@pytest.mark.parametrize(
    "said",
    [
        LENGTH.pack(1 << 30),
        LENGTH.pack(4) + b"what",
        LENGTH.pack(100) + b"half",
        b"\1",
        LENGTH.pack(len(NESTED)) + NESTED,
    ],
    ids=["oversized", "nonsense", "half", "a byte", "nested"],
)
def test_who_talks_nonsense_is_cut_off(served, said) -> None:
    _, port = served
    with connected(port) as connection:
        connection.sendall(said)
        assert cut_off(connection)


def test_who_does_not_prove_itself_is_cut_off(served) -> None:
    _, port = served
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(bytes(64))
        assert len(connection.recv(40)) == 40
        assert cut_off(connection)


def test_too_many_connections_are_closed_at_once(served) -> None:
    _, port = served
    inside = [connected(port) for _ in range(3)]
    with socket.create_connection(("127.0.0.1", port)) as one_more:
        assert cut_off(one_more)
    for one in inside:
        one.close()


def test_a_server_that_gets_no_thread_serves_the_next_client(served, monkeypatch) -> None:
    _, port = served
    start, refused = threading.Thread.start, []

    def refuse(thread) -> None:
        if len(refused) < 4:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert cut_off(connection)
    inside = [connected(port) for _ in range(3)]
    assert len(refused) == 4
    for one in inside:
        one.close()


def test_who_asks_for_too_much_gets_nothing(served) -> None:
    rig, port = served
    wire = TcpWire(rig.regions, lambda _: f"127.0.0.1:{port}", secret=SECRET)
    assert fails(wire, whole(rig, units=9)) is MoveEnd.GONE
    wire.carry(whole(rig, units=8))
    wire.close()


def test_who_does_not_take_what_it_asked_for_is_cut_off() -> None:
    rig = Rig(stride=1 << 20)
    server = TcpServer(rig.sources, SECRET, bounds=Bounds(stall_s=0.3))
    port = server.serve()
    left = threading.Event()
    with connected(port) as connection:
        body = encode(Request(rig.strip(i4(*range(64)), 1 << 20), 256, 0, 0, 0, summed=True))
        connection.sendall(LENGTH.pack(len(body)) + body)
        receive_some(connection, time.monotonic_ns() + 10**9)
        time.sleep(0.6)
        rig.sources.remove(rig.far.memory, left.set)
        assert left.wait(2)
    server.close()
