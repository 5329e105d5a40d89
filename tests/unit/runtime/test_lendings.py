"""Which arenas an agent lends to whom, and what becomes of those of the dead."""

import os

import numpy as np
import pytest

from tercet.engine.memory import AddressRange, arena_layout, make_arena
from tercet.observe.config import ObserveConfig
from tercet.observe.log import Log
from tercet.runtime.control import Lent, Withdrawn
from tercet.runtime.lendings import Lendings

LAYOUT = arena_layout(60, 10)
OTHER = arena_layout(60, 2000)


class Channel:
    """The agent's end: remembers what was said."""

    def __init__(self):
        self.said = []

    def send(self, note, descriptors=()):
        del descriptors
        self.said.append(note)
        return True


class Resident:
    def __init__(self, executor, layout=LAYOUT):
        self.executor = executor
        self.layout = layout
        self.parts = {"arena": make_arena(f"test-{executor}", layout, populate=False)}
        self.birth = Channel()

    def lent(self):
        return [note.memory for note in self.birth.said if isinstance(note, Lent)]

    def withdrawn(self):
        return [note.memory for note in self.birth.said if isinstance(note, Withdrawn)]


class World:
    def __init__(self, sealed_max=1):
        self.lendings = Lendings("h", sealed_max=sealed_max, log=Log("test", ObserveConfig()))
        self.living = []

    def starts(self, executor, layout=LAYOUT):
        resident = Resident(executor, layout)
        self.lendings.add(resident, layout, self.living)
        self.living.append(resident)
        return resident

    def dies(self, resident):
        self.living.remove(resident)
        self.lendings.gone(resident.executor, self.living)


@pytest.fixture
def world():
    made = World()
    yield made
    for resident in made.living:
        os.close(resident.parts["arena"])


def test_executors_of_one_layout_are_lent_each_others_arenas(world):
    one, two, other = world.starts(1), world.starts(2), world.starts(3, OTHER)
    assert one.lent() == ["h/kv/2"]
    assert two.lent() == ["h/kv/1"]
    assert other.lent() == []


def test_an_executor_that_says_again_that_it_is_ready_changes_nothing(world):
    one, two = world.starts(1), world.starts(2)
    world.lendings.add(two, LAYOUT, [one])
    assert one.lent() == ["h/kv/2"]


def test_a_dead_executors_arena_is_sealed_until_its_readers_let_go(world):
    one, two, three = (world.starts(number) for number in (1, 2, 3))
    world.dies(one)
    assert two.withdrawn() == three.withdrawn() == ["h/kv/1"]
    assert (world.lendings.num_sealed, world.lendings.sealed_bytes) == (1, LAYOUT.size_bytes)
    world.lendings.unmapped(2, "h/kv/1")
    assert world.lendings.num_sealed == 1
    world.lendings.unmapped(3, "h/kv/1")
    assert world.lendings.num_sealed == 0


def test_a_reader_that_dies_has_let_go(world):
    one, two = world.starts(1), world.starts(2)
    world.dies(one)
    world.dies(two)
    assert world.lendings.num_sealed == 0


def test_a_newcomer_is_not_lent_what_is_sealed(world):
    one, _ = world.starts(1), world.starts(2)
    world.dies(one)
    assert world.starts(3).lent() == ["h/kv/2"]


def test_beyond_the_bound_the_oldest_sealed_arena_begins_other_lives(world):
    one, two, _ = (world.starts(number) for number in (1, 2, 3))
    seen = AddressRange.reserve(LAYOUT, block_shape=(3, 5))
    seen.map_arena(0, one.parts["arena"], writable=True)
    seen.generations(0)[:] = np.arange(10)
    seen.blocks[:] = 1.5
    world.dies(one)
    assert seen.generations(0).tolist() == list(range(10))
    world.dies(two)
    assert world.lendings.num_sealed == 1
    assert (seen.generations(0) != np.arange(10)).all()
    assert (seen.blocks == 1.5).all()
    seen.close()
