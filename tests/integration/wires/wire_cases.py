"""Memories with generations and a clock, and each wire between two of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tercet.messages.effects import Move
from tercet.messages.kv import Strip
from tercet.wires import tcp_exchange
from tercet.wires.contract import Fence, Region, Wire
from tercet.wires.memory import MemoryWire
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.sums import fold_of
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_server import TcpServer

SECRET = b"a secret of tests"
SOURCE, TARGET = "far/kv/1", "near/kv/2"
UNITS = 64
STRIDE = 1024


def i4(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def u4(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


class Rig:
    """A source of 64 units of 1024 bytes, unit u in life 100 + u, and a target of the same size."""

    def __init__(self, units: int = UNITS, stride: int = STRIDE) -> None:
        self.stride = stride
        self.source = np.random.default_rng(3).integers(0, 256, units * stride, dtype=np.uint8)
        self.target = np.zeros(units * stride, np.uint8)
        self.lives = np.arange(100, 100 + units, dtype=np.uint32)
        self.clock = np.zeros(1, np.uint64)
        fence = Fence(lives=self.lives.ctypes.data, units=units, clock=self.clock.ctypes.data)
        self.far = Region(
            memory=SOURCE, address=self.source.ctypes.data, size=self.source.nbytes, fence=fence
        )
        near = Region(
            memory=TARGET, address=self.target.ctypes.data, size=self.target.nbytes, writable=True
        )
        self.regions = Regions((near,))
        self.sources = Regions()
        self.add_source()

    def add_source(self) -> None:
        self.sources.add(self.far)

    def strip(self, units: bytes, length: int = STRIDE, *, start: int = 0, lives: bytes = b""):
        return Strip(SOURCE, start, self.stride, length, units, lives)

    def whole(self, size: int) -> Strip:
        return Strip(TARGET, 0, 0, size, i4(0))

    def check(self, strip: Strip, part: int) -> int:
        return fold_of(self.far.address, strip, part)


def move(source: Strip, target: Strip, part: int = 256, **fields: object) -> Move:
    return Move(ticket=1, source=source, target=target, part_bytes=part, **{"check": None} | fields)


@dataclass
class Opened:
    rig: Rig
    wire: Wire
    ends: list[Callable[[], None]] = field(default_factory=list)
    server: TcpServer | None = None

    def close(self) -> None:
        for end in self.ends:
            end()


def _local(make):
    def opened(rig: Rig) -> Opened:
        rig.sources = rig.regions
        rig.add_source()
        wire = make(rig.regions)
        return Opened(rig, wire, [wire.close])

    return opened


def tcp(rig: Rig, *, secret: bytes = SECRET, **fields) -> Opened:
    server = TcpServer(rig.sources, SECRET, **fields)
    address = f"127.0.0.1:{server.serve()}"
    wire = TcpWire(rig.regions, {"far": address}.get, secret=secret)
    return Opened(rig, wire, [wire.close, server.close], server)


WIRES = {"memory": _local(MemoryWire), "shared": _local(SharedWire), "tcp": tcp}


def plain_tcp(rig: Rig) -> Opened:
    """As on a machine without the native module."""
    real, tcp_exchange.NATIVE = tcp_exchange.NATIVE, None
    opened = tcp(rig)
    opened.ends.append(lambda: setattr(tcp_exchange, "NATIVE", real))
    return opened


WIRES["tcp in python"] = plain_tcp
