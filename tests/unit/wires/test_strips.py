"""Strips that are cut are still the same bytes in the same order."""

from collections.abc import Iterator
from itertools import chain, cycle

from hypothesis import given
from hypothesis import strategies as st

from tercet.messages.kv import Strip
from tercet.wires.strips import cut, pieces, stripes

PART = 100


@st.composite
def strips(draw: st.DrawFn) -> Strip:
    units = draw(st.lists(st.integers(0, 30), max_size=12))
    length = PART * draw(st.integers(1, 7))
    raw = b"".join(unit.to_bytes(4, "little") for unit in units)
    return Strip("far/kv/1", draw(st.integers(0, 50)), length + 64, length, raw, raw)


def every_byte(strip: Strip, begin: int, end: int) -> Iterator[int]:
    return chain.from_iterable(range(at, at + size) for at, size in pieces(strip, begin, end))


@given(strips(), st.lists(st.integers(PART, 9 * PART), min_size=1, max_size=5))
def test_cut_to_any_sizes_nothing_is_lost_or_doubled(strip: Strip, sizes: list[int]) -> None:
    at = 0
    for begin, piece in cut(strip, cycle(sizes), PART):
        assert begin == at
        assert piece.size > 0
        assert piece.length % PART == 0
        assert len(piece.lives) == len(piece.units)
        assert list(every_byte(piece, 0, piece.size)) == list(
            every_byte(strip, at, at + piece.size)
        )
        at += piece.size
    assert at == strip.size


@given(strips(), st.integers(PART, 9 * PART))
def test_stripes_are_no_longer_than_asked(strip: Strip, size: int) -> None:
    found = stripes(strip, size, PART)
    assert sum(piece.size for _, piece in found) == strip.size
    assert all(piece.size <= size for _, piece in found)
