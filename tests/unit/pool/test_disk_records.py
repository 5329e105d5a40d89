"""Records of labels on disk: none is given to two, all that are free are given."""

from hypothesis import given
from hypothesis import strategies as st

from tercet.pool.disk_tier import _Records

TOTAL = 12


@given(
    st.sets(st.integers(0, TOTAL - 1)),
    st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 16)), max_size=60),
)
def test_each_is_in_use_once(adopted: set[int], acts: list[tuple[bool, int]]) -> None:
    records, used = _Records(TOTAL), set(adopted)
    for record in adopted:
        records.adopt(record)
    for gives, pick in acts:
        if gives and used:
            record = sorted(used)[pick % len(used)]
            records.give(record)
            used.remove(record)
            continue
        taken = records.take()
        assert (taken is None) == (len(used) == TOTAL)
        if taken is not None:
            assert taken not in used
            used.add(taken)
