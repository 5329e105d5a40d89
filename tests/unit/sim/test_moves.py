"""Moves in virtual time fail as real ones do: torn, stale, corrupt, gone, late, full."""

from array import array
from dataclasses import dataclass, field

import numpy as np
import pytest

from tercet.base.rand import Rand
from tercet.messages.effects import Move, Sum
from tercet.messages.events import Moved, MoveEnd, Summed
from tercet.messages.kv import Strip
from tercet.sim.layer_clock import LayerClock
from tercet.sim.memories import ARENA_BLOCKS_AT, CELL_BYTES, Arena, Memories, Memory, cells_of, fold
from tercet.sim.moves import Mover
from tercet.sim.planes import Planes
from tercet.sim.scenario import NetworkSpec
from tercet.sim.timeline import MS, S, Timeline

LAYERS = 2
BLOCK = LAYERS * CELL_BYTES


@dataclass
class Process:
    """Whoever asks for moves."""

    timeline: Timeline
    address: str = "executor/1"
    alive: bool = True
    thaws_in: int = 0
    heard: list[Moved | Summed] = field(default_factory=list)

    @property
    def now(self) -> int:
        return self.timeline.now

    def deliver(self, event: Moved | Summed) -> None:
        self.heard.append(event)


class World:
    """Two arenas and a disk; `far`: the source is on another host."""

    def __init__(self, *, far: bool = False) -> None:
        self.timeline = Timeline()
        self.memories = Memories()
        lives = np.zeros(32, np.uint32)
        self.source = Arena("a/kv/1", host="a", lives=lives[:16], layers=LAYERS)
        here = "b" if far else "a"
        self.target = Arena("b/kv/2", host=here, lives=lives[16:], layers=LAYERS)
        self.disk = Memory(f"{here}/disk/0", host=here, num_cells=64)
        for memory in (self.source, self.target, self.disk):
            self.memories.add(memory)
        self.source.renew(np.arange(16), np.full(16, 5, np.uint32))
        self.source.blocks[:] = np.arange(16 * LAYERS, dtype=np.uint64).reshape(16, LAYERS) + 1000
        self.agent = Process(self.timeline, "agent/a")
        self.planes = Planes(self.timeline, NetworkSpec())
        self.mover = Mover(
            self.timeline,
            self.memories,
            self.planes,
            rand=Rand(1),
            sender_of=lambda _: self.agent if self.agent.alive else None,  # type: ignore[arg-type]
        )
        self.owner = Process(self.timeline)

    def move(self, **more: object) -> None:
        units, lives = array("i", [2, 3]).tobytes(), array("I", [5, 5]).tobytes()
        targets, begins = array("i", [7, 8]).tobytes(), array("I", [1, 1]).tobytes()
        told = {
            "ticket": 1,
            "source": Strip("a/kv/1", ARENA_BLOCKS_AT, BLOCK, BLOCK, units, lives),
            "target": Strip("b/kv/2", ARENA_BLOCKS_AT, BLOCK, BLOCK, targets, begins),
            "part_bytes": CELL_BYTES,
            "check": None,
            **more,
        }
        self.mover.carry_out(self.owner, Move(**told))  # type: ignore[arg-type]

    def end(self, until: int = 10 * S) -> MoveEnd | None:
        self.timeline.at(until, lambda: None)
        while self.timeline.now < until:
            self.timeline.step()
        (answer,) = self.owner.heard or [None]
        assert answer is None or isinstance(answer, Moved)
        return None if answer is None else answer.end

    @property
    def same(self) -> bool:
        return bool((self.target.blocks[7:9] == self.source.blocks[2:4]).all())


@pytest.mark.parametrize("far", [False, True])
def test_a_move_brings_what_was_there(far: bool) -> None:
    world = World(far=far)
    world.move()
    assert not world.same
    assert world.end() is MoveEnd.DONE
    assert world.same
    assert world.target.lives[7:9].tolist() == [1, 1]
    assert world.mover.num_under_way == 0


@pytest.mark.parametrize("when", [0, 1])
def test_another_life_of_the_source_is_stale(when: int) -> None:
    world = World()
    renew = (np.array([3]), np.array([6], np.uint32))
    if when == 0:
        world.source.renew(*renew)
    world.move()
    if when == 1:
        world.timeline.after(1, lambda: world.source.renew(*renew))
    assert world.end() is MoveEnd.STALE
    assert not world.same


def test_what_is_written_over_meanwhile_comes_torn_and_the_check_finds_it() -> None:
    for check, end in ((None, MoveEnd.DONE), (1, MoveEnd.CORRUPT)):
        world = World()
        before = world.source.blocks[2:4].copy()
        strip = Strip("a/kv/1", ARENA_BLOCKS_AT, BLOCK, BLOCK, array("i", [2, 3]).tobytes())
        world.move(source=strip, check=check and fold(before.ravel()))
        world.timeline.after(1, lambda w=world: w.source.spoil(np.arange(1, 12)))  # type: ignore[misc]
        assert world.end() is end
        assert (world.target.blocks[7] == before[0]).all(), "the first half was read before"
        assert (world.target.blocks[8] != before[1]).all()


def test_a_wire_that_flips_a_bit_is_found_without_a_check() -> None:
    world = World(far=True)
    world.mover.corrupt_next()
    world.move()
    assert world.end() is MoveEnd.CORRUPT


@pytest.mark.parametrize("what", ["unknown", "agent dead", "agent dies", "cut for long"])
def test_a_source_that_is_gone(what: str) -> None:
    world = World(far=True)
    if what == "unknown":
        world.memories.remove("a/kv/1")
    if what == "agent dead":
        world.agent.alive = False
    world.move()
    if what == "agent dies":
        world.agent.alive = False
    if what == "cut for long":
        for wire in world.planes.pair("a", "b"):
            wire.cut(5 * S)
    assert world.end() is MoveEnd.GONE
    assert not world.same


def test_a_short_cut_makes_it_late_only() -> None:
    world = World(far=True)
    world.move()
    for wire in world.planes.pair("a", "b"):
        wire.cut(300 * MS)
    assert world.end(until=290 * MS) is None
    assert world.end() is MoveEnd.DONE


def test_a_deadline_ends_it_and_nothing_is_written_after() -> None:
    world = World(far=True)
    world.planes.pair("a", "b")[0].slow_down(1e6, 10 * S)
    world.move(deadline=50 * MS)
    assert world.end(until=60 * MS) is MoveEnd.LATE
    world.target.blocks[7:9] = 3
    world.end(until=100 * S)
    assert (world.target.blocks[7:9] == 3).all()


def test_a_dead_owner_writes_nothing() -> None:
    world = World()
    world.move()
    world.owner.alive = False
    assert world.end() is None
    assert not world.same
    assert world.mover.num_under_way == 0


def test_a_full_disk_takes_nothing() -> None:
    world = World()
    world.planes.writes(world.disk.name).refuse(1 * S)
    size = 2 * BLOCK
    world.move(
        target=Strip(world.disk.name, 0, size, size, array("i", [0]).tobytes()), label=b"\0" * 128
    )
    assert world.end() is MoveEnd.FULL
    assert not world.disk.labels


def test_a_layer_is_waited_for() -> None:
    world = World()
    clock = world.source.owner = LayerClock(world.timeline, world.source, lambda: 0)
    tags = np.array([[1, 2], [3, 4]], np.uint64)
    world.move(step=4, layer=2)
    world.timeline.at(10 * MS, lambda: clock.begin(4, 20 * MS, np.array([2, 3]), tags))
    assert world.end(until=25 * MS) is None
    assert world.source.blocks[2].tolist() == [1, 1005], "the first layer is there"
    assert world.end() is MoveEnd.DONE
    assert world.target.blocks[7:9].tolist() == tags.tolist()


def test_a_sum_is_the_fold_of_what_is_there() -> None:
    world = World()
    strip = Strip("a/kv/1", ARENA_BLOCKS_AT, BLOCK, BLOCK, array("i", [2, 3]).tobytes())
    world.mover.sum(world.owner, Sum(ticket=3, sources=(strip,), part_bytes=CELL_BYTES))
    world.timeline.step()
    assert world.owner.heard == [Summed(ticket=3, checks=(fold(world.source.blocks[2:4].ravel()),))]


def test_strips_name_cells_in_their_order() -> None:
    strip = Strip("m", CELL_BYTES, 3 * CELL_BYTES, 2 * CELL_BYTES, array("i", [1, 0]).tobytes())
    assert cells_of(strip).tolist() == [4, 5, 1, 2]
