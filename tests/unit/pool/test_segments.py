"""Places of any length: no overlap, everything that is given back can be had again."""

from array import array
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.pool import segments as module
from tercet.pool.config import UNIT_BYTES
from tercet.pool.segments import NO_OWNER, Segments, units_for

ACTS = st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(0, 1 << 16)), max_size=120)


@given(ACTS, st.lists(st.integers(1, 60), min_size=1, max_size=3))
def test_places_never_overlap_and_all_come_back(
    acts: list[tuple[bool, int, int]], sizes: list[int]
) -> None:
    segments = Segments([size * UNIT_BYTES for size in sizes])
    taken: dict[int, int] = {}
    edges = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    for gives, units, pick in acts:
        if gives and taken:
            unit = sorted(taken)[pick % len(taken)]
            segments.give(unit)
            del taken[unit]
        else:
            unit = segments.take(units * UNIT_BYTES, pick)
            if unit is not None:
                place = range(unit, unit + units)
                assert place.stop <= segments.total
                assert not any(edge in range(unit + 1, place.stop) for edge in edges)
                for other, length in taken.items():
                    assert place.stop <= other or other + length <= unit, "two values overlap"
                taken[unit] = units
                assert segments.owner(unit) == pick
        segments.check()
        assert segments.used == sum(taken.values())
    for unit in taken:
        segments.give(unit)
    segments.check()
    assert segments.free == segments.total
    assert segments.take(max(sizes) * UNIT_BYTES, 1) is not None, "all of it can be had as one"


def test_one_length_fills_all() -> None:
    segments = Segments([1000 * UNIT_BYTES])
    places = [segments.take(7 * UNIT_BYTES - 1, number) for number in range(142)]
    assert None not in places
    assert segments.take(7 * UNIT_BYTES, 0) is None
    assert segments.used == 142 * 7
    assert segments.stats().free == 6 * UNIT_BYTES


def test_a_full_memory_says_which_values_are_in_the_way_of_another_length() -> None:
    segments = Segments([640 * UNIT_BYTES])
    places = [segments.take(UNIT_BYTES, number) for number in range(640)]
    assert segments.take(4 * UNIT_BYTES, 0) is None
    first = places[0]
    assert first is not None
    owners = segments.neighbours(first)
    assert len(owners) == 10
    for owner in owners:
        place = places[owner]
        assert place is not None
        segments.give(place)
    assert segments.take(4 * UNIT_BYTES, 0) is not None
    segments.check()


def test_values_longer_than_everything_have_no_place() -> None:
    segments = Segments([10 * UNIT_BYTES, 10 * UNIT_BYTES])
    assert segments.take(11 * UNIT_BYTES, 0) is None, "a value lies in one segment"
    assert segments.take(0, 0) is None
    assert segments.segment_of(12) == (1, 2 * UNIT_BYTES)


def test_spans_of_a_former_self_are_taken_up() -> None:
    rand = Random(1)
    former = Segments([500 * UNIT_BYTES])
    kept: dict[int, tuple[int, int, int]] = {}
    for number in range(60):
        unit = former.take(rand.choice([2, 5, 11]) * UNIT_BYTES, number)
        if unit is not None and rand.random() < 0.5:
            kept[unit] = former.span_of(unit)
    after = Segments([500 * UNIT_BYTES])
    for unit, (start, slots, slot) in kept.items():
        after.adopt(start, slots, slot)
        assert after.adopt_slot(unit, 7)
        assert not after.adopt_slot(unit, 8), "it is there already"
        after.check()
    assert {unit for unit, _ in after.owners()} == kept.keys()
    assert not after.adopt(0, 1000, 1)
    assert after.owner_at(499) in {None, 7, NO_OWNER}


def test_units() -> None:
    assert [units_for(size) for size in (1, UNIT_BYTES, UNIT_BYTES + 1)] == [1, 1, 2]


class Counted(array):  # type: ignore[type-arg]
    """Counts the items that are looked at or moved."""

    steps = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.steps += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[int]:
        Counted.steps += len(self)
        return super().__iter__()

    def __mul__(self, count: int) -> "Counted":
        return Counted("I", super().__mul__(count))

    def remove(self, value: int) -> None:
        Counted.steps += len(self)
        super().remove(value)

    def index(self, value: int, *at: int) -> int:
        Counted.steps += len(self)
        return super().index(value, *at)


def test_adopting_all_slots_takes_a_few_steps_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full slab has millions: to look for each among all would take minutes, at every start."""
    monkeypatch.setattr(module, "array", Counted)
    slots = 4096
    segments = Segments([64 * slots * UNIT_BYTES])
    Counted.steps = 0
    for number in range(slots - 1):
        segments.adopt(0, slots, 1)
        assert segments.adopt_slot(number * 37 % slots, number)
    assert Counted.steps < 10 * slots
    last = (slots - 1) * 37 % slots
    assert segments.take(UNIT_BYTES, 5) == last, "it knows which one is left"
    assert Counted.steps < 20 * slots
    segments.check()
    segments.give(last)
    segments.give(0)
    segments.check()
    assert {segments.take(UNIT_BYTES, 6), segments.take(UNIT_BYTES, 7)} == {0, last}


def test_slots_can_be_adopted_while_others_are_taken_and_given() -> None:
    segments = Segments([100 * UNIT_BYTES])
    assert segments.adopt(10, 5, 2)
    assert not segments.adopt(10, 5, 2)
    assert segments.adopt_slot(14, 1)
    places = {segments.take(2 * UNIT_BYTES, 2), segments.take(2 * UNIT_BYTES, 3)}
    assert 14 not in places
    free = next(unit for unit in range(10, 20, 2) if segments.owner(unit) == NO_OWNER)
    assert segments.adopt_slot(free, 4)
    segments.check()
    segments.give(14)
    segments.check()
