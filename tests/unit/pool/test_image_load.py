"""Which block of an image comes from whom."""

from tercet.pool.images import BLOCK_BYTES, PER_SOURCE_MAX, ImageLoad, block_span, num_blocks

SIZE = 5 * BLOCK_BYTES + 17
COUNT = 6
CHECKS = tuple(range(100, 100 + COUNT))


def all_of(load: ImageLoad) -> list[tuple[int, str]]:
    """Load everything, one round of copies after another; who gave which block."""
    given = []
    while not load.whole:
        round_ = []
        while (fetch := load.next()) is not None:
            round_.append(fetch)
        assert round_, "nothing comes next and blocks are missing"
        for fetch in round_:
            load.ended(fetch.block, good=True)
            given.append((fetch.block, fetch.memory))
        load.check()
    return given


def test_blocks_cover_the_image() -> None:
    assert num_blocks(SIZE) == COUNT
    spans = [block_span(SIZE, block) for block in range(COUNT)]
    assert spans[0] == (0, BLOCK_BYTES)
    assert spans[-1] == (5 * BLOCK_BYTES, 17)
    assert sum(length for _, length in spans) == SIZE


def test_all_hosts_that_have_parts_are_asked() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * COUNT, CHECKS)
    load.told("b", b"\1" * COUNT, CHECKS)
    given = all_of(load)
    assert sorted(block for block, _ in given) == list(range(COUNT))
    for memory in ("a", "b"):
        assert sum(source == memory for _, source in given) == COUNT // 2
    assert tuple(load.checks) == CHECKS


def test_what_few_have_comes_first() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * COUNT, CHECKS)
    load.told("b", bytes([1, 1, 0, 0, 1, 0]), CHECKS)
    first = [load.next(), load.next()]
    assert [(one.memory, one.block) for one in first if one] == [("a", 2), ("b", 0)]


def test_no_source_has_more_under_way_than_it_may() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * COUNT, CHECKS)
    fetches = [load.next() for _ in range(PER_SOURCE_MAX + 1)]
    assert [fetch is not None for fetch in fetches] == [True] * PER_SOURCE_MAX + [False]


def test_a_corrupt_block_comes_from_another() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * COUNT, CHECKS)
    bad = load.next()
    assert bad is not None
    load.ended(bad.block, good=False, corrupt=True)
    load.told("b", b"\1" * COUNT, CHECKS)
    assert dict(all_of(load))[bad.block] == "b"


def test_a_source_that_lies_often_or_is_gone_is_asked_no_more() -> None:
    load = ImageLoad(SIZE)
    load.told("liar", b"\1" * COUNT, CHECKS)
    for _ in range(3):
        fetch = load.next()
        assert fetch is not None
        load.ended(fetch.block, good=False, corrupt=True)
    assert load.sources == ()
    load.told("gone", b"\1" * COUNT, CHECKS)
    fetch = load.next()
    assert fetch is not None
    load.ended(fetch.block, good=False)
    assert load.next() is None
    assert load.idle


def test_words_of_another_size_are_passed_by() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * (COUNT - 1), CHECKS)
    load.told("b", b"\1" * COUNT, CHECKS[1:])
    assert load.sources == ()


def test_a_source_that_was_away_has_no_more_under_way_than_it_may() -> None:
    load = ImageLoad(SIZE)
    load.told("a", b"\1" * COUNT, CHECKS)
    fetches = [load.next() for _ in range(PER_SOURCE_MAX)]
    load.lost("a")
    load.told("a", b"\1" * COUNT, CHECKS)
    assert load.next() is None
    for fetch in fetches:
        assert fetch is not None
        load.ended(fetch.block, good=True)
        load.check()
    assert len(all_of(load)) == COUNT - PER_SOURCE_MAX


def test_a_source_may_gain_and_lose_blocks() -> None:
    load = ImageLoad(SIZE)
    load.told("a", bytes([1, 1, 0, 0, 0, 0]), CHECKS)
    load.told("a", bytes([0, 1, 1, 1, 1, 1]), CHECKS)
    load.check()
    load.told("b", b"\1" * COUNT, CHECKS)
    load.lost("b")
    load.check()
    taken = []
    while (fetch := load.next()) is not None:
        load.ended(fetch.block, good=True)
        taken.append(fetch.block)
    assert sorted(taken) == [1, 2, 3, 4, 5]
