"""The executor's side of lending: memories of its host that it has mapped to read.

agent --Lent (descriptor)--> map read-only --> ArenaLent -------> machine
agent --Withdrawn----------------------------> ArenaWithdrawn --> machine --Unmap--> Unmapped
"""

import asyncio
import mmap
import os
from collections.abc import Callable

import numpy as np

from tercet.base.errors import must
from tercet.engine.memory import CLOCK_AT, LIVES_AT, AddressRange
from tercet.messages.effects import Unmap
from tercet.messages.events import ArenaLent, ArenaWithdrawn
from tercet.messages.wire import Members
from tercet.runtime.control import Channel, Lent, Unmapped, Withdrawn
from tercet.wires.contract import Fence, Region
from tercet.wires.regions import Regions

NUM_ARENAS = 64
"""Places in an executor's address range: its own arena's and those of its host's others."""
LentEvent = ArenaLent | ArenaWithdrawn


class Borrowing:
    """Listens to the agent for life; `deliver` reaches the machine."""

    def __init__(
        self,
        channel: Channel,
        memory: AddressRange,
        *,
        regions: Regions,
        deliver: Callable[[LentEvent], None],
    ) -> None:
        self._channel = channel
        self._memory = memory
        self._regions = regions
        self._deliver = deliver
        self._slots: dict[str, int] = {}
        self._leaving: dict[int, None] = {}
        """Places that nothing names any more and that a move may still read."""
        self._segments: dict[str, mmap.mmap] = {}
        self._members: dict[str, None] = {}
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._channel.end.setblocking(False)
        self._loop.add_reader(self._channel.fileno(), self._told)

    def unmap(self, effect: Unmap) -> None:
        """Give a lent arena's place back: nothing names it any more."""
        slot = self._slots.pop(effect.memory)
        self._leaving[slot] = None

        def then() -> None:
            self._memory.unmap_arena(slot)
            del self._leaving[slot]
            self._channel.send(Unmapped(memory=effect.memory))

        def in_the_loop() -> None:
            self._loop.call_soon_threadsafe(then)

        # A move by shared memory may be reading it: whoever reads last says so.
        self._regions.remove(effect.memory, in_the_loop)

    def news(self, members: Members) -> None:
        """Withdraw the arenas of executors that were members and are none any more: an agent that
        was restarted meanwhile knows nothing of them.
        """
        present = {ready.reach.memory: None for ready in members.executors}
        if members.settled:
            for memory in [one for one in self._members if one not in present]:
                if memory in self._slots:
                    self._withdrawn(memory)
            self._members = present

    def _told(self) -> None:
        while True:
            try:
                received = self._channel.receive()
            except BlockingIOError:
                return
            if received is None:
                self._loop.remove_reader(self._channel.fileno())
                return
            note, descriptors = received
            match note:
                case Lent():
                    self._lent(note, descriptors[0])
                case Withdrawn(memory=memory):
                    self._withdrawn(memory)
                case _:
                    must(False, f"an executor is told {type(note).__name__}")

    def _lent(self, note: Lent, descriptor: int) -> None:
        if not note.arena:
            self._map_segment(note, descriptor)
            os.close(descriptor)
            return
        if note.memory in self._slots:
            os.close(descriptor)  # said again by an agent that was restarted
            return
        slot = self._free_slot()
        if slot is None:
            os.close(descriptor)
            return  # all places are taken: it is read by copies only
        memory = self._memory
        memory.map_arena(slot, descriptor, writable=False)
        os.close(descriptor)
        self._slots[note.memory] = slot
        self._regions.add(arena_region(memory, note.memory, slot))
        layout = memory.layout
        self._deliver(
            ArenaLent(
                memory=note.memory,
                first_block=slot * layout.blocks_per_arena,
                num_blocks=layout.num_blocks,
            )
        )

    def _free_slot(self) -> int | None:
        taken = dict.fromkeys(self._slots.values()) | self._leaving
        return next((one for one in range(1, self._memory.num_arenas) if one not in taken), None)

    def _map_segment(self, note: Lent, descriptor: int) -> None:
        """An agent that was restarted has new ones under the same names."""
        if note.memory in self._segments:
            self._unmap_segment(note.memory)
        page = mmap.mmap(descriptor, note.size, prot=mmap.PROT_READ)
        self._segments[note.memory] = page
        address = np.frombuffer(page, np.uint8).ctypes.data
        self._regions.add(Region(memory=note.memory, address=address, size=note.size))

    def _withdrawn(self, memory: str) -> None:
        if memory in self._slots:
            self._deliver(ArenaWithdrawn(memory=memory))
            return
        if memory in self._segments:
            self._unmap_segment(memory)
        self._channel.send(Unmapped(memory=memory))  # also where it never had a place

    def _unmap_segment(self, memory: str) -> None:
        page = self._segments.pop(memory)
        self._regions.remove(memory, lambda: _forget(page))


def arena_region(memory: AddressRange, name: str, arena: int, *, writable: bool = False) -> Region:
    """A mapped arena as a memory that wires can read, with its directory as fence."""
    address = memory.address(arena)
    fence = Fence(
        lives=address + LIVES_AT, units=memory.layout.num_blocks, clock=address + CLOCK_AT
    )
    return Region(
        memory=name,
        address=address,
        size=memory.layout.size_bytes,
        writable=writable,
        fence=fence,
    )


def _forget(page: mmap.mmap) -> None:
    """The mapping goes with its last reference."""
    del page
