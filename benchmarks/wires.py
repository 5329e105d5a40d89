"""Wires beside plain copies and raw sockets, in one run: `python -m benchmarks.wires`.

Source and target are shared memory of two processes; blocks of 384 KiB (32 layers of 12 KiB) are
read in a shuffled order. Contenders take turns; the medians of all rounds are compared. Raw sockets
are measured as the system makes them and, where it paces them (BBR), as the wire makes its own. A
checksum is summed by both ends, or it is given: then the receiver alone sums, as for stored values.
"""

import ctypes
import mmap
import multiprocessing
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from tercet.messages.effects import Move
from tercet.messages.kv import Strip
from tercet.wires.contract import Region
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.sums import fold_of
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_protocol import unpace
from tercet.wires.tcp_server import TcpServer

PART, BLOCK, BLOCKS = 12 << 10, 384 << 10, 256
SIZE = BLOCK * BLOCKS
SMALL = 64 << 10
ROUNDS = 15
SECRET = b"of the benchmark"
CONNECTIONS = (1, 2, 4)
ORDER = np.random.default_rng(1).permutation(BLOCKS).astype("<i4")
_ASK = struct.Struct("<QQ")


def shared() -> tuple[mmap.mmap, int]:
    page = mmap.mmap(-1, SIZE)
    page[:] = np.random.default_rng(2).bytes(SIZE)
    return page, np.frombuffer(page, np.uint8).ctypes.data


def far_side(page: mmap.mmap, address: int, pipe: Connection) -> None:
    """The other process: a data server, and a raw one that sends the bytes it is asked for."""
    region = Region(memory="far/kv/1", address=address, size=SIZE)
    server = TcpServer(Regions((region,)), SECRET)
    raw = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    unpace(raw[1])  # and all that it accepts
    for one in raw:
        threading.Thread(target=_raw_accept, args=(one, memoryview(page)), daemon=True).start()
    pipe.send((server.serve(), *(one.getsockname()[1] for one in raw)))
    pipe.recv()
    os._exit(0)


def _raw_accept(listener: socket.socket, memory: memoryview) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_raw_serve, args=(connection, memory), daemon=True).start()


def _raw_serve(connection: socket.socket, memory: memoryview) -> None:
    while ask := connection.recv(_ASK.size):
        begin, count = _ASK.unpack(ask)
        if count == SMALL:
            connection.sendall(memory[:SMALL])
            continue
        for block in ORDER[begin : begin + count].tolist():
            connection.sendall(memory[block * BLOCK : (block + 1) * BLOCK])


class Raw:
    """Several sockets, each asked for its share of the blocks, received where they belong."""

    def __init__(self, port: int, target: mmap.mmap, connections: int) -> None:
        self._target = memoryview(target)
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def all(self) -> None:
        share = BLOCKS // len(self._sockets)
        threads = [
            threading.Thread(target=self._pull, args=(one, number * share, share))
            for number, one in enumerate(self._sockets)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def small(self) -> None:
        self._sockets[0].sendall(_ASK.pack(0, SMALL))
        self._fill(self._sockets[0], self._target[:SMALL])

    def _pull(self, one: socket.socket, begin: int, count: int) -> None:
        one.sendall(_ASK.pack(begin, count))
        self._fill(one, self._target[begin * BLOCK : (begin + count) * BLOCK])

    def _fill(self, one: socket.socket, view: memoryview) -> None:
        while view:
            view = view[one.recv_into(view) :]


def plain_copy(source: int, target: int) -> Callable[[], None]:
    """memcpy, block by block, and nothing else."""
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    pairs = [(target + i * BLOCK, source + int(block) * BLOCK) for i, block in enumerate(ORDER)]

    def copy() -> None:
        for there, here in pairs:
            libc.memcpy(there, here, BLOCK)

    return copy


def moves(source: int) -> dict[str, Move]:
    blocks = Strip("far/kv/1", 0, BLOCK, BLOCK, ORDER.tobytes())
    target = Strip("near/kv/2", 0, 0, SIZE, b"\0\0\0\0")
    small = Strip("far/kv/1", 0, SMALL, SMALL, b"\0\0\0\0")
    here = Strip("near/kv/2", 0, SMALL, SMALL, b"\0\0\0\0")
    check = fold_of(source, blocks, PART)
    return {
        "plain": Move(ticket=1, source=blocks, target=target, part_bytes=PART, check=None),
        "checked": Move(ticket=1, source=blocks, target=target, part_bytes=PART, check=check),
        "small": Move(ticket=1, source=small, target=here, part_bytes=SMALL // 8, check=None),
    }


def contenders(page: mmap.mmap, source: int, ports: tuple[int, int, int]) -> dict[str, Callable]:
    into, target = shared()
    far = Region(memory="far/kv/1", address=source, size=SIZE)
    near = Region(memory="near/kv/2", address=target, size=SIZE, writable=True)
    wire = SharedWire(Regions((far, near)))
    all_moves = moves(source)
    del page
    rows: dict[str, Callable] = {
        "plain copy": plain_copy(source, target),
        "shared": lambda: wire.carry(all_moves["plain"]),
        "shared, checksum": lambda: wire.carry(all_moves["checked"]),
    }
    for count in CONNECTIONS:
        rows[f"raw sockets, {count}"] = Raw(ports[1], into, count).all
        rows[f"raw sockets, {count}, unpaced"] = Raw(ports[2], into, count).all
        for verified in (False, True):
            tcp = TcpWire(
                Regions((near,)),
                lambda _: f"127.0.0.1:{ports[0]}",
                secret=SECRET,
                connections=count,
                verified=verified,
            )
            name = f"tcp, {count}" + (", checksum" if verified else "")
            rows[name] = lambda tcp=tcp: tcp.carry(all_moves["plain"])
            if verified:
                rows[f"tcp, {count}, check given"] = lambda tcp=tcp: tcp.carry(all_moves["checked"])
            if count == 1:
                rows[f"64 KiB {name}"] = lambda tcp=tcp: tcp.carry(all_moves["small"])
    rows["64 KiB raw"] = Raw(ports[1], into, 1).small
    return rows


def measured(rows: dict[str, Callable]) -> dict[str, float]:
    """Median seconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for round_ in range(ROUNDS + 2):
        for name, call in rows.items():
            repeats = 50 if name.startswith("64") else 1
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            if round_ >= 2:
                times[name].append((time.perf_counter() - started) / repeats)
    return {name: statistics.median(all_times) for name, all_times in times.items()}


def report(found: dict[str, float]) -> str:
    rate = {name: SIZE / one / 1e9 for name, one in found.items() if "64 KiB" not in name}
    best = max(one for name, one in rate.items() if name.startswith("raw"))
    plain = max(rate[f"tcp, {count}"] for count in CONNECTIONS)
    summed = max(rate[f"tcp, {count}, checksum"] for count in CONNECTIONS)
    given = max(rate[f"tcp, {count}, check given"] for count in CONNECTIONS)
    latency = found["64 KiB tcp, 1, checksum"] / found["64 KiB raw"]
    lines = ["| contender | GB/s |", "|---|---|"]
    lines += [f"| {name} | {one:.2f} |" for name, one in rate.items()]
    lines += ["", "| 64 KiB, request to last byte | us |", "|---|---|"]
    lines += [f"| {name} | {one * 1e6:.0f} |" for name, one in found.items() if "64 KiB" in name]
    lines += ["", "| what | measured | bar |", "|---|---|---|"]
    shared_part = rate["shared, checksum"] / rate["plain copy"]
    cost = 1 - rate["shared, checksum"] / rate["shared"]
    lines += [
        f"| shared with checksum, of a plain copy | {shared_part:.0%} | >= 70 % |",
        f"| TCP with a check given, of the best raw sockets | {given / best:.0%} | >= 80 % |",
        f"| TCP summed by both ends, of the best raw sockets | {summed / best:.0%} | >= 80 % |",
        f"| 64 KiB, of the raw round trip | {latency:.2f} x | <= 2 x |",
        f"| checksum, of a shared copy | {cost:.0%} | < 20 % |",
        f"| a given check, of TCP | {1 - given / plain:.0%} | < 10 % |",
        f"| a sum by both ends, of TCP | {1 - summed / plain:.0%} | < 10 % |",
    ]
    return "\n".join(lines)


def main() -> None:
    page, source = shared()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=far_side, args=(page, source, there), daemon=True
    )
    process.start()
    print(report(measured(contenders(page, source, here.recv()))))
    here.send(None)


if __name__ == "__main__":
    main()
