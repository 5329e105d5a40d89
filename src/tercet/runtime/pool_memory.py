"""The memories of a host's share of the pool: segments of DRAM, and the slab on disk.

segments   memfds, populated beside everything else; lent to executors, which read values in place
slab       a file, and one of labels beside it; these are read after a start, and what they say is
           verified when it is used
"""

import asyncio
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.messages.events import SlabScanned
from tercet.node_agent.pool_places import disk_name, dram_name
from tercet.observe.log import Log
from tercet.pool.config import PoolConfig
from tercet.pool.disk import HEAD, KIND, DiskLayout
from tercet.pool.labels import LABEL_BYTES, record_of
from tercet.runtime.control import Begin
from tercet.wires.contract import WireFailure
from tercet.wires.disk import DiskWire
from tercet.wires.regions import Regions
from tercet.wires.slab import Slab

READ_BYTES = 1 << 20
"""Labels that are read at once."""
SCAN_BYTES = 32 << 10
"""Labels that are told at once: a few milliseconds of the machine's time. In between the loop
turns, for an agent that does not beat is killed, and its next self begins the same scan.
"""


class PoolMemory:
    """Opened by the agent before its machine takes anything."""

    def __init__(self, config: PoolConfig, host: str) -> None:
        self._config = config
        self._host = host
        self._layout = DiskLayout.of(config.disk_bytes)
        self._slab: Slab | None = None
        self.segments: dict[str, tuple[int, mmap.mmap]] = {}
        """Descriptor and mapping of each segment, by the name of its memory."""

    def open(self) -> None:
        """Open the slab and make the segments; `Invalid` says what cannot be had."""
        if self._config.disk_path is not None:
            path = Path(self._config.disk_path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                layout = self._layout
                size, notes_size = layout.data_end, layout.label_bytes
                self._slab = Slab(path, size, head=HEAD, kind=KIND, notes_size=notes_size)
            except OSError as error:
                raise Invalid(
                    f"The pool's disk {path} of {self._config.disk_bytes} bytes cannot be had: "
                    f"{error.strerror or error}.",
                    code="no_pool",
                    parameter="pool.disk_path",
                ) from error
        for number, size in enumerate(self._config.segments):
            name = dram_name(self._host, number)
            descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
            self.segments[name] = (descriptor, mmap.mmap(descriptor, size))

    def wire(self, regions: Regions) -> DiskWire | None:
        """What carries between memory and the disk, if there is one."""
        if self._slab is None:
            return None
        layout = self._layout
        return DiskWire(
            regions,
            disk_name(self._host),
            self._slab,
            label_at=lambda label: layout.record_at(record_of(label)),
        )

    async def populate(self) -> None:
        """Bring the segments' memory in, so that no value waits for it."""
        loop = asyncio.get_running_loop()
        for descriptor, page in self.segments.values():
            await loop.run_in_executor(None, os.posix_fallocate, descriptor, 0, len(page))

    async def scan(self, deliver: Callable[[SlabScanned], None]) -> None:
        """Tell of the labels that lie on the disk; the last word is told in any case."""
        memory, slab, layout = disk_name(self._host), self._slab, self._layout
        if slab is None:
            return
        size = layout.num_records * LABEL_BYTES
        pieces = slab.notes(layout.labels_at, size, READ_BYTES)
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(None, _next_said, pieces):
            for begin in range(0, len(piece), SCAN_BYTES):
                labels = piece[begin : begin + SCAN_BYTES]
                if labels != bytes(len(labels)):
                    deliver(SlabScanned(memory=memory, labels=labels, last=False))
                    await asyncio.sleep(0)
        deliver(SlabScanned(memory=memory, labels=b"", last=True))


def _next_said(pieces: Iterator[bytes]) -> bytes:
    """Read on until there is a piece with anything in it; a disk that cannot be read holds nothing
    more.
    """
    with suppress(WireFailure):
        for piece in pieces:
            if piece != bytes(len(piece)):
                return piece
    return b""


def open_pool(begin: Begin, log: Log) -> tuple[PoolMemory, PoolConfig]:
    """Give the open share of an agent's host, and what it is now; `Invalid` if it cannot be had.

    Where an agent has served before, a disk that cannot be opened is one that broke: its next self
    goes on in memory alone.
    """
    config, host = begin.config.pool, begin.address.removeprefix("agent/")
    pool = PoolMemory(config, host)
    try:
        pool.open()
    except Invalid as error:
        if not begin.next_executor:
            raise
        log.line("error", "pool.disk_off", why=error.sentence)
        config = replace(config, disk_path=None, disk_bytes=0)
        pool = PoolMemory(config, host)
        pool.open()
    return pool, config
