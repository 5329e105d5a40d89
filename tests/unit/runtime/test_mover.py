"""Moves beside the loop: each is answered once, waiting ones hold up nobody."""

import asyncio
import threading
import time

import numpy as np
import pytest

from tercet.messages.effects import Move, Sum
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.messages.kv import Strip
from tercet.runtime import mover as module
from tercet.runtime.mover import Mover
from tercet.wires.contract import Done, Plane, Region, WireFailure
from tercet.wires.regions import Regions
from tercet.wires.sums import fold_of

UNITS = np.arange(4, dtype="<i4").tobytes()
MINE = Strip("h/kv/1", 0, 64, 64, UNITS)
FAR = Strip("h/kv/2", 0, 64, 64, UNITS)


class Wire:
    """Carries what it is told to; moves for a layer wait for `layer`."""

    name = "fake"
    plane = Plane.SCALE_UP

    def __init__(self):
        self.layer = threading.Event()
        self.ends = {}

    def reaches(self, move):
        return move.source.memory == FAR.memory

    def carry(self, move):
        if move.step:
            assert self.layer.wait(20)
        if move.ticket in self.ends:
            raise WireFailure(self.ends[move.ticket], "as told")
        return Done(size=move.source.size, duration_ns=5, fold=None)


def move(ticket, source=FAR, **more):
    return Move(ticket=ticket, source=source, target=MINE, part_bytes=64, check=None, **more)


def carried(effects, wire=None, *, count=None, then=lambda _: None):
    """What the loop hears of these effects, in order."""
    memory = np.arange(256, dtype=np.uint8)
    regions = Regions((Region(memory="h/kv/1", address=memory.ctypes.data, size=256),))
    heard = []

    async def main():
        enough = asyncio.Event()

        def deliver(event):
            heard.append(event)
            then(heard)
            if len(heard) == (count or len(effects)):
                enough.set()

        wires = wire if isinstance(wire, tuple) else (wire or Wire(),)
        mover = Mover(regions, wires, deliver, loop=asyncio.get_running_loop())
        for effect in effects:
            (mover.sum if isinstance(effect, Sum) else mover.move)(effect)
        await asyncio.wait_for(enough.wait(), 20)

    asyncio.run(main())
    return heard, memory


def test_a_move_ends_done_with_its_size_and_wire():
    heard, _ = carried([move(1)])
    assert heard == [Moved(ticket=1, end=MoveEnd.DONE, size=256, duration_ns=5, wire="fake")]


@pytest.mark.parametrize("end", [MoveEnd.CORRUPT, MoveEnd.STALE, MoveEnd.GONE, MoveEnd.LATE])
def test_a_wire_that_fails_says_how_the_move_ended(end):
    wire = Wire()
    wire.ends[1] = end
    heard, _ = carried([move(1)], wire)
    assert heard == [Moved(ticket=1, end=end, wire="fake")]


def test_memory_that_no_wire_reaches_is_gone_and_a_past_deadline_is_late():
    heard, _ = carried([move(1, Strip("x/kv/9", 0, 64, 64, UNITS)), move(2, deadline=1)])
    assert {event.ticket: event.end for event in heard} == {1: MoveEnd.GONE, 2: MoveEnd.LATE}


def test_moves_that_wait_for_a_layer_hold_up_nobody():
    wire = Wire()
    waiting = [move(number, step=3, layer=1) for number in range(12)]
    others = [move(100 + number) for number in range(6)]

    def go_on(heard):
        if len(heard) == 6:
            wire.layer.set()

    heard, _ = carried(waiting + others, wire, then=go_on)
    assert sorted(event.ticket for event in heard[:6]) == [100, 101, 102, 103, 104, 105]
    assert sorted(event.ticket for event in heard[6:]) == list(range(12))


class FarWire(Wire):
    """To hosts of which some are frozen: nothing comes of what is asked of them."""

    name = "tcp"
    plane = Plane.SCALE_OUT

    def __init__(self):
        super().__init__()
        self.asked = []

    def reaches(self, move):
        return not move.source.memory.startswith("h/")

    def carry(self, move):
        self.asked.append(move.ticket)
        if move.source.memory.startswith("frozen"):
            assert self.layer.wait(20)
        return super().carry(move)


def test_a_frozen_host_holds_up_neither_copies_here_nor_other_hosts():
    near, far = Wire(), FarWire()
    frozen = [move(n, Strip("frozen/dram/0", 0, 64, 64, UNITS)) for n in range(8)]
    others = [move(100 + n, Strip("b/dram/0", 0, 64, 64, UNITS)) for n in range(3)]
    here = [move(200 + n) for n in range(3)]

    def go_on(heard):
        if len(heard) == 6:
            assert sum(ticket < 100 for ticket in far.asked) == module.PER_HOST
            far.layer.set()

    heard, _ = carried(frozen + others + here, (near, far), then=go_on)
    assert sorted(event.ticket for event in heard[:6]) == [100, 101, 102, 200, 201, 202]
    assert sorted(event.ticket for event in heard[6:]) == list(range(8))


def test_what_waits_in_line_is_late_at_its_deadline_and_was_not_begun():
    far = FarWire()
    soon = time.monotonic_ns() + 50_000_000
    frozen = [move(n, Strip("frozen/dram/0", 0, 64, 64, UNITS)) for n in range(module.PER_HOST)]
    behind = [move(10, Strip("frozen/dram/0", 0, 64, 64, UNITS), deadline=soon)]

    def go_on(heard):
        if heard[-1].ticket == 10:
            assert heard[-1] == Moved(ticket=10, end=MoveEnd.LATE)
            far.layer.set()

    heard, _ = carried(frozen + behind, (far,), then=go_on)
    assert heard[0].ticket == 10
    assert far.asked == list(range(module.PER_HOST))


def test_waiting_for_the_layers_of_one_lender_holds_up_no_other():
    wire = Wire()
    far = FarWire()
    slow = [move(n, step=3, layer=1) for n in range(6)]
    others = [move(100 + n, Strip("b/kv/2", 0, 64, 64, UNITS), step=1, layer=1) for n in range(2)]
    far.carry = lambda move: Done(size=1, duration_ns=1, fold=None)

    def go_on(heard):
        if len(heard) == 2:
            wire.layer.set()

    heard, _ = carried(slow + others, (wire, far), then=go_on)
    assert sorted(event.ticket for event in heard[:2]) == [100, 101]


def test_more_than_the_bound_fail_at_once(monkeypatch):
    monkeypatch.setattr(module, "QUEUE_MAX", 3)
    wire = Wire()

    def go_on(heard):
        wire.layer.set()

    heard, _ = carried([move(number, step=1, layer=1) for number in range(5)], wire, then=go_on)
    ends = {event.ticket: event.end for event in heard}
    assert [ends[number] for number in (3, 4)] == [MoveEnd.LATE] * 2
    assert [ends[number] for number in (0, 1, 2)] == [MoveEnd.DONE] * 3


def test_sums_fold_every_strip():
    strips = (MINE, Strip("h/kv/1", 64, 64, 64, np.arange(2, dtype="<i4").tobytes()))
    heard, memory = carried([Sum(ticket=9, sources=strips, part_bytes=64)])
    expected = tuple(fold_of(memory.ctypes.data, strip, 64) for strip in strips)
    assert heard == [Summed(ticket=9, checks=expected)]
    assert expected[0] != expected[1]


def test_a_disk_that_hangs_holds_up_nobody() -> None:
    """Every thread for disks waits in a read that does not end; memory goes on."""

    class Disk(Wire):
        plane = Plane.STORAGE

        def reaches(self, move):
            return "/disk/" in move.source.memory

        def carry(self, move):
            assert self.layer.wait(20)
            return super().carry(move)

    disk = Disk()
    place = Strip("h/disk/0", 0, 64, 64, UNITS)
    reads = [move(number, place) for number in range(module.DISK_THREADS + 2)]

    def let_go(heard):
        if len(heard) == 3:
            assert [moved.ticket for moved in heard] == [100, 101, 102]
            disk.layer.set()

    copies = [move(number) for number in (100, 101, 102)]
    heard, _ = carried([*reads, *copies], (disk, Wire()), then=let_go)
    assert len(heard) == len(reads) + 3
