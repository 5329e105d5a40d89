"""What copies take on this machine, by the wires that a tree would use: memory, TCP, a disk."""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.cache.economy import Economy
from tercet.cli.break_even import Way
from tercet.messages.effects import Move
from tercet.messages.kv import Strip
from tercet.wires.contract import Region, Wire, WireFailure
from tercet.wires.disk import DiskWire
from tercet.wires.regions import Regions
from tercet.wires.shared import SharedWire
from tercet.wires.slab import Slab
from tercet.wires.sums import fold_of
from tercet.wires.tcp import TcpWire
from tercet.wires.tcp_server import TcpServer

SMALL, LARGE = 64 << 10, 64 << 20
ROUNDS = 5
PART = 4096
_FAR, _NEAR, _DISK = "far/dram/0", "near/kv/0", "near/disk/0"


def measured_ways(disk: Path | None) -> list[Way]:
    """Copy a little and a lot, several times each; a disk's folder gets a file for the while."""
    with _pages() as source, _pages() as target:
        far = Region(memory=_FAR, address=source, size=LARGE)
        near = Region(memory=_NEAR, address=target, size=LARGE, writable=True)
        check = {size: fold_of(source, _strip(_FAR, size), PART) for size in (SMALL, LARGE)}
        economy = Economy()
        _measure(economy, "dram", SharedWire(Regions((far, near))), _moves(_FAR, check))
        with _served(far, near) as wire:
            _measure(economy, "DRAM", wire, _moves(_FAR, check))
        if disk is not None:
            with _slab(disk) as slab:
                wire = DiskWire(Regions((far, near)), _DISK, slab)
                wire.carry(_move(_FAR, _DISK, LARGE, check[LARGE]))
                _measure(economy, "ssd", wire, _moves(_DISK, check))
    return [
        Way(
            source=one.source,
            latency_s=one.latency_ns / 1e9,
            bytes_per_s=one.bytes_per_s,
            fetches=one.fetches,
            bytes=one.bytes,
        )
        for one in economy.standing()
    ]


def _measure(economy: Economy, name: str, wire: Wire, moves: list[Move]) -> None:
    """The first of each is not counted: connections are made, pages come in."""
    for move in moves:
        for turn in range(ROUNDS + 1):
            done = wire.carry(move)
            if turn:
                economy.learn(name, size=done.size, duration_ns=done.duration_ns)
    wire.close()


def _moves(source: str, check: dict[int, int]) -> list[Move]:
    return [_move(source, _NEAR, size, check[size]) for size in (SMALL, LARGE)]


def _strip(memory: str, size: int) -> Strip:
    return Strip(memory, 0, 0, size, bytes(4))


def _move(source: str, target: str, size: int, check: int) -> Move:
    strips = _strip(source, size), _strip(target, size)
    return Move(ticket=0, source=strips[0], target=strips[1], part_bytes=PART, check=check)


@contextmanager
def _pages() -> Iterator[int]:
    """Memory that both sides of a shared copy could have mapped."""
    page = mmap.mmap(-1, LARGE)
    for at in range(0, LARGE, mmap.PAGESIZE):
        page[at] = at >> 12 & 0xFF
    view = (ctypes.c_uint8 * LARGE).from_buffer(page)
    try:
        yield ctypes.addressof(view)
    finally:
        del view
        page.close()


@contextmanager
def _served(far: Region, near: Region) -> Iterator[Wire]:
    """A data server and its client, over the loopback."""
    secret = os.urandom(32)
    server = TcpServer(Regions((far,)), secret)
    address = f"127.0.0.1:{server.serve()}"
    try:
        yield TcpWire(Regions((near,)), lambda _: address, secret=secret)
    finally:
        server.close()


@contextmanager
def _slab(folder: Path) -> Iterator[Slab]:
    try:
        with tempfile.TemporaryDirectory(prefix="tercet-", dir=folder) as own:
            slab = Slab(Path(own) / "slab", LARGE, head=b"")
            try:
                yield slab
            finally:
                slab.close()
    except (OSError, WireFailure) as error:
        raise Invalid(f"{folder} cannot be measured: {error}.", parameter="disk") from error
