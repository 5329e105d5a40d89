"""What fetches cost is learned from what they took, and decides how much is worth its way."""

import random

import pytest

from tercet.cache.economy import (
    PRIOR_LATENCY_NS,
    SOURCES_MAX,
    TRY_BYTES,
    Economy,
)

MB = 1 << 20
LATENCY_NS = 2e6
NS_PER_BYTE = 2.0


def _truth(size):
    return int(LATENCY_NS + size * NS_PER_BYTE)


def _taught(*sizes, name="ssd", times=10, factor=1.0):
    economy = Economy()
    for _ in range(times):
        for size in sizes:
            economy.learn(name, size=size, duration_ns=int(factor * _truth(size)))
    return economy


@pytest.mark.parametrize("sizes", [(64 << 10, 64 * MB), (MB, 8 * MB, 100 * MB)])
def test_latency_and_bandwidth_are_told_apart_by_sizes(sizes):
    economy = _taught(*sizes)
    for size in (4096, *sizes, 500 * MB):
        assert economy.cost_ns("ssd", size) == pytest.approx(_truth(size), rel=0.02)


def test_one_size_alone_tells_of_that_size():
    for size in (32 << 10, 90 * MB):
        assert _taught(size).cost_ns("ssd", size) == pytest.approx(_truth(size), rel=0.01)
    large = _taught(90 * MB)
    assert large.cost_ns("ssd", 1) == pytest.approx(PRIOR_LATENCY_NS, rel=0.01)


def test_a_slow_first_fetch_of_nearly_the_same_size_does_not_make_bytes_free():
    economy = Economy()
    economy.learn("dram", size=32 * MB, duration_ns=200_000_000)
    for _ in range(5):
        economy.learn("dram", size=44 * MB, duration_ns=9_000_000)
    (one,) = economy.standing()
    assert 1e9 < one.bytes_per_s <= 20e9
    assert economy.cost_ns("dram", 1024 * MB) > 50_000_000


def test_noise_and_outliers_move_it_little():
    rand = random.Random(4)
    economy = Economy()
    for turn in range(300):
        size = rand.choice((MB, 20 * MB, 90 * MB))
        slow = 50 if turn % 40 == 0 else 1
        duration = slow * _truth(size) * rand.lognormvariate(0.0, 0.2)
        economy.learn("ssd", size=size, duration_ns=int(duration))
    for turn in range(12):
        economy.learn("ssd", size=20 * MB, duration_ns=_truth(20 * MB))
        assert turn < 5 or economy.cost_ns("ssd", 20 * MB) < 1.7 * _truth(20 * MB)


@pytest.mark.parametrize("factor", [0.05, 50.0])
def test_a_source_that_changes_is_followed(factor):
    economy = _taught(MB, 90 * MB)
    for _ in range(25):
        economy.learn("ssd", size=90 * MB, duration_ns=int(factor * _truth(90 * MB)))
    expected = factor * _truth(90 * MB)
    assert economy.cost_ns("ssd", 90 * MB) == pytest.approx(expected, rel=0.1)


def test_bytes_under_way_come_first():
    economy = _taught(MB, 64 * MB)
    trip = economy.begin([("ssd", 64 * MB)])
    assert economy.cost_ns("ssd", MB) == pytest.approx(_truth(65 * MB), rel=0.02)
    economy.end(trip, _truth(64 * MB))
    assert economy.cost_ns("ssd", MB) == pytest.approx(_truth(MB), rel=0.02)
    economy.end(trip, 10**12)
    assert economy.standing()[0].bytes_under_way == 0, "an end counts once"


def test_fetches_one_behind_another_do_not_make_a_source_look_slow():
    economy = _taught(MB, 64 * MB)
    for _ in range(20):
        trips = [economy.begin([("ssd", 32 * MB)]) for _ in range(3)]
        for place, trip in enumerate(trips, 1):
            economy.end(trip, _truth(place * 32 * MB))
    assert economy.cost_ns("ssd", 32 * MB) == pytest.approx(_truth(32 * MB), rel=0.05)


def test_failures_teach_only_that_something_is_slow():
    economy = _taught(MB, 64 * MB)
    before = economy.cost_ns("ssd", MB)
    economy.end(economy.begin([("ssd", MB)]), 1000, good=False)
    assert economy.cost_ns("ssd", MB) == before
    for _ in range(8):
        economy.end(economy.begin([("ssd", MB)]), 5_000_000_000, good=False)
    assert economy.cost_ns("ssd", MB) > 100 * before
    assert economy.standing()[0].bytes_under_way == 0


def test_the_longest_part_that_pays_is_taken():
    economy = _taught(MB, 64 * MB)
    fast = 10 * _truth(MB)
    pieces = [("ssd", MB)] * 6
    assert economy.worth(pieces, [fast * n for n in range(1, 7)]) == 6
    assert economy.worth(pieces, [fast, 2 * fast, 2 * fast, 2 * fast, 2 * fast, 2 * fast]) == 2
    assert economy.worth([], []) == 0


def test_what_costs_more_than_it_saves_is_left():
    economy = _taught(MB, 64 * MB)
    assert economy.worth([("ssd", 8 * MB)], [0.5 * _truth(8 * MB)]) == 0


def test_a_queue_hides_a_fetch():
    economy = _taught(MB, 64 * MB)
    saved = [0.5 * _truth(8 * MB)]
    assert economy.worth([("ssd", 8 * MB)], saved, queue_ns=_truth(8 * MB)) == 1


def test_what_nobody_tried_is_tried_with_little():
    economy = Economy()
    count = economy.worth([("peer:a", 3 * MB)] * 100, [1e9 * n for n in range(1, 101)])
    assert count == TRY_BYTES // (3 * MB)
    assert economy.worth([("peer:b", 2 * TRY_BYTES)], [1e9]) == 1


def test_what_was_bad_is_tried_again_and_the_loss_is_small():
    economy = _taught(MB, factor=1000.0)
    saved, lost, tries = float(_truth(MB)), 0.0, 0
    for _ in range(200_000):
        if economy.worth([("ssd", MB)], [saved]):
            tries += 1
            lost += 1000 * _truth(MB) - saved
            economy.learn("ssd", size=MB, duration_ns=1000 * _truth(MB))
    assert tries > 1
    assert lost <= 0.021 * 200_000 * saved


def test_a_source_that_recovered_is_used_again():
    economy = _taught(MB, 64 * MB, factor=20.0)
    saved = [3.0 * n * _truth(8 * MB) for n in range(1, 9)]
    pieces = [("ssd", 8 * MB)] * 8
    taken = []
    for _ in range(300):
        count = economy.worth(pieces, saved)
        if count:
            economy.learn("ssd", size=8 * MB * count, duration_ns=_truth(8 * MB * count))
        taken.append(count)
    assert taken[0] == 0
    assert taken[-1] == 8


def test_sources_are_bounded():
    economy = Economy()
    for number in range(2 * SOURCES_MAX):
        economy.learn(f"peer:{number}", size=MB, duration_ns=1000)
    assert len(economy.standing()) == SOURCES_MAX
    economy.end(economy.begin([("peer:new", 5)]), 7)
    assert economy.worth([("peer:new", MB)], [1e9]) == 1
