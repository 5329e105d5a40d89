"""The index finds what is in it, as a dict would, in a tenth of the memory."""

from hypothesis import given
from hypothesis import strategies as st

from tercet.pool.index import NONE, Index
from tercet.pool.lists import Lists

WORDS = st.integers(0, 40)


@given(st.lists(st.tuples(st.booleans(), WORDS, st.integers(0, 3)), max_size=200))
def test_it_is_a_dict(acts: list[tuple[bool, int, int]]) -> None:
    index, model = Index(), {}
    mine = index.column("H", 9)
    for adds, a, b in acts:
        word = a << 58 | a  # many in one bucket
        entry = index.find(word, b)
        assert entry == model.get((word, b), NONE)
        if adds and entry == NONE:
            entry = model[word, b] = index.add(word, b)
            assert mine[entry] == 9, "nothing of a former value is left"
            mine[entry] = a
        elif not adds and entry != NONE:
            index.forget(entry)
            del model[word, b]
        assert len(index) == len(model)
    index.check()
    assert sorted(index) == sorted(model.values())
    assert all(mine[entry] == word & 63 for (word, _), entry in model.items())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=80))
def test_lists_keep_their_order(acts: list[tuple[int, int]]) -> None:
    index = Index()
    lists = Lists(index)
    names = [lists.make() for _ in range(3)]
    model: dict[int, list[int]] = {name: [] for name in names}
    for entry in range(10):
        index.add(entry, entry)
    for which, entry in acts:
        if lists.list_of(entry):
            of = lists.remove(entry)
            model[of].remove(entry)
        if which < 3:
            lists.push(names[which], entry)
            model[names[which]].append(entry)
        for name in names:
            assert list(lists.members(name)) == model[name]
            assert lists.size(name) == len(model[name])
            assert lists.oldest(name) == (model[name] or [NONE])[0]


def test_it_is_small() -> None:
    """All columns of a share with both tiers; benchmarks/pool.py measures ten million."""
    index = Index()
    lists = [Lists(index), Lists(index)]
    more = [index.column(kind, 0) for kind in "IIIIII"]
    for number in range(20_000):
        index.add(number * 0x9E3779B97F4A7C15 & (1 << 64) - 1, number)
    assert len(lists) + len(more) == 8
    assert index.num_bytes / len(index) < 120
