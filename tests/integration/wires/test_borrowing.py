"""Arenas that an agent lends over a real channel: mapped, told of, withdrawn, given back."""

import asyncio
import os

import numpy as np
import pytest

from tercet.engine.memory import AddressRange, arena_layout, make_arena
from tercet.messages.effects import Unmap
from tercet.messages.events import ArenaLent, ArenaWithdrawn
from tercet.runtime.borrowing import Borrowing
from tercet.runtime.control import Lent, Unmapped, Withdrawn, channel_pair
from tercet.wires.regions import Regions

LAYOUT = arena_layout(60, 10)
NUM_ARENAS = 3


class Executor:
    """What an executor has of its own and of others, and the agent's end of its channel."""

    def __init__(self):
        self.agent, self._ours = channel_pair()
        self.agent.end.settimeout(10)
        self.memory = AddressRange.reserve(LAYOUT, block_shape=(3, 5), num_arenas=NUM_ARENAS)
        own = make_arena("test-own", LAYOUT)
        self.memory.map_arena(0, own, writable=True)
        os.close(own)
        self.regions = Regions()
        self.heard = []
        self._news = asyncio.Event()
        self.borrowing = Borrowing(
            self._ours, self.memory, regions=self.regions, deliver=self._take
        )
        self.borrowing.start()

    def close(self):
        asyncio.get_running_loop().remove_reader(self._ours.fileno())
        self.agent.close()
        self._ours.close()

    def _take(self, event):
        self.heard.append(event)
        self._news.set()

    async def hears(self, count):
        while len(self.heard) < count:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)
        return self.heard[count - 1]

    def lend(self, name, value):
        """A peer's arena whose blocks hold the value."""
        descriptor = make_arena(name, LAYOUT)
        data = np.full(LAYOUT.num_blocks * 15, value, np.float32)
        os.pwrite(descriptor, data.tobytes(), LAYOUT.directory_bytes)
        self.agent.send(Lent(memory=name, size=LAYOUT.size_bytes, arena=True), (descriptor,))
        os.close(descriptor)

    async def gives_back(self):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self.agent.receive()[0])


def lent_at(slot, memory):
    first = slot * LAYOUT.blocks_per_arena
    return ArenaLent(memory=memory, first_block=first, num_blocks=LAYOUT.num_blocks)


async def whole_way(executor):
    executor.lend("h/kv/7", 1.5)
    assert await executor.hears(1) == lent_at(1, "h/kv/7")
    first = LAYOUT.blocks_per_arena
    assert (executor.memory.blocks[first : first + 10] == 1.5).all()
    executor.lend("h/kv/7", 9.0)  # said again: nothing changes
    executor.agent.send(Withdrawn(memory="h/kv/7"))
    assert await executor.hears(2) == ArenaWithdrawn(memory="h/kv/7")
    executor.borrowing.unmap(Unmap(memory="h/kv/7"))
    assert await executor.gives_back() == Unmapped(memory="h/kv/7")
    executor.lend("h/kv/8", 2.5)
    assert await executor.hears(3) == lent_at(1, "h/kv/8")
    assert (executor.memory.blocks[first : first + 10] == 2.5).all()


async def place_still_read(executor):
    executor.lend("h/kv/7", 1.5)
    await executor.hears(1)
    first = LAYOUT.blocks_per_arena
    with executor.regions.hold("h/kv/7"):  # as a move does
        executor.borrowing.unmap(Unmap(memory="h/kv/7"))
        executor.lend("h/kv/8", 2.5)
        assert await executor.hears(2) == lent_at(2, "h/kv/8")
        assert (executor.memory.blocks[first : first + 10] == 1.5).all()
    assert await executor.gives_back() == Unmapped(memory="h/kv/7")
    executor.lend("h/kv/9", 3.5)
    assert await executor.hears(3) == lent_at(1, "h/kv/9")


async def no_place(executor):
    for number in range(7, 10):
        executor.lend(f"h/kv/{number}", number)
    executor.agent.send(Withdrawn(memory="h/kv/7"))
    assert await executor.hears(3) == ArenaWithdrawn(memory="h/kv/7")
    assert executor.heard[:2] == [lent_at(1, "h/kv/7"), lent_at(2, "h/kv/8")]
    assert "h/kv/9" not in executor.regions
    executor.agent.send(Withdrawn(memory="h/kv/9"))
    assert await executor.gives_back() == Unmapped(memory="h/kv/9")


@pytest.mark.parametrize("story", [whole_way, place_still_read, no_place])
def test_a_lent_arena_is_read_in_place_and_given_back(story):
    async def told():
        executor = Executor()
        try:
            await story(executor)
        finally:
            executor.close()

    asyncio.run(told())
