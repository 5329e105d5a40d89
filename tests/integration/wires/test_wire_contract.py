"""What every wire has to do, whatever it is made of (`wires.contract`)."""

import threading
import time

import numpy as np
import pytest
from wire_cases import SOURCE, STRIDE, TARGET, WIRES, Rig, i4, move, u4

from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Plane, WireFailure

PART = 256


@pytest.fixture(params=WIRES)
def opened(request):
    rig = Rig()
    opened = WIRES[request.param](rig)
    yield opened
    opened.close()


def fails(opened, one) -> MoveEnd:
    with pytest.raises(WireFailure) as failure:
        opened.wire.carry(one)
    return failure.value.end


def test_it_has_a_name_and_a_plane(opened) -> None:
    assert opened.wire.name in {"memory", "shared", "tcp"}
    assert isinstance(opened.wire.plane, Plane)


def test_it_says_what_it_reaches(opened) -> None:
    rig = opened.rig
    source = rig.strip(i4(1))
    assert opened.wire.reaches(move(source, rig.whole(STRIDE)))
    assert not opened.wire.reaches(move(source, Strip("near/kv/9", 0, 0, STRIDE, i4(0))))
    elsewhere = Strip("lost/kv/9", 0, 0, STRIDE, i4(0))
    assert not opened.wire.reaches(move(elsewhere, rig.whole(STRIDE)))


@pytest.mark.parametrize("checked", [True, False])
def test_blocks_become_one_value_in_their_order(opened, checked) -> None:
    rig = opened.rig
    source = rig.strip(i4(9, 2, 40, 3), lives=u4(109, 102, 140, 103))
    check = rig.check(source, PART) if checked else None
    done = opened.wire.carry(move(source, rig.whole(4 * STRIDE), check=check))
    expected = rig.source.reshape(-1, STRIDE)[[9, 2, 40, 3]].reshape(-1)
    assert np.array_equal(rig.target[: 4 * STRIDE], expected)
    assert not rig.target[4 * STRIDE :].any()
    assert done.size == 4 * STRIDE
    assert done.duration_ns > 0
    if checked:
        assert done.fold == check


def test_a_layer_of_each_block_goes_to_the_same_layer_of_others(opened) -> None:
    rig = opened.rig
    source = rig.strip(i4(5, 6, 7), 2 * PART, start=PART)
    target = Strip(TARGET, PART, STRIDE, 2 * PART, i4(30, 10, 20))
    opened.wire.carry(move(source, target, check=rig.check(source, PART)))
    blocks, layers = rig.source.reshape(-1, STRIDE), slice(PART, 3 * PART)
    for there, here in ((5, 30), (6, 10), (7, 20)):
        assert np.array_equal(rig.target.reshape(-1, STRIDE)[here, layers], blocks[there, layers])
    assert np.count_nonzero(rig.target) <= 6 * PART


def test_a_value_becomes_blocks(opened) -> None:
    rig = opened.rig
    source = Strip(SOURCE, 3 * STRIDE, 0, 4 * STRIDE, i4(0))
    target = Strip(TARGET, 0, STRIDE, STRIDE, i4(8, 1, 4, 2))
    opened.wire.carry(move(source, target, check=rig.check(source, PART)))
    blocks = rig.target.reshape(-1, STRIDE)[[8, 1, 4, 2]]
    assert np.array_equal(blocks.reshape(-1), rig.source[3 * STRIDE : 7 * STRIDE])


def test_nothing_is_carried_as_well(opened) -> None:
    source = opened.rig.strip(b"")
    target = Strip(TARGET, 0, STRIDE, STRIDE, b"")
    assert opened.wire.carry(move(source, target)).size == 0


@pytest.mark.parametrize("name", WIRES)
def test_megabytes_arrive_whole(name) -> None:
    rig = Rig(units=300, stride=96 << 10)
    opened = WIRES[name](rig)
    order = np.random.default_rng(5).permutation(300).astype("<i4")
    source = Strip(SOURCE, 0, rig.stride, rig.stride, order.tobytes())
    target = Strip(TARGET, 0, 0, rig.target.nbytes, i4(0))
    check = rig.check(source, 12 << 10)
    done = opened.wire.carry(move(source, target, 12 << 10, check=check))
    assert done.fold == check
    assert np.array_equal(
        rig.target.reshape(300, -1), rig.source.reshape(300, -1)[order.astype(int)]
    )
    opened.close()


def test_other_bytes_than_were_summed_are_corrupt(opened) -> None:
    rig = opened.rig
    source = rig.strip(i4(1, 2))
    check = rig.check(source, PART)
    rig.source[2 * STRIDE + 77] ^= 4
    assert fails(opened, move(source, rig.whole(2 * STRIDE), check=check)) is MoveEnd.CORRUPT


def test_a_unit_in_another_life_is_stale(opened) -> None:
    rig = opened.rig
    source = rig.strip(i4(1, 2), lives=u4(101, 103))
    assert fails(opened, move(source, rig.whole(2 * STRIDE))) is MoveEnd.STALE


def test_a_memory_that_nobody_knows_is_gone(opened) -> None:
    source = Strip("far/kv/7", 0, STRIDE, STRIDE, i4(1))
    assert fails(opened, move(source, opened.rig.whole(STRIDE))) is MoveEnd.GONE


@pytest.mark.parametrize("units", [i4(64), i4(-1), i4(2**31 - 1)])
def test_bytes_outside_the_memory_are_gone(opened, units) -> None:
    source = opened.rig.strip(units)
    assert fails(opened, move(source, opened.rig.whole(STRIDE))) is MoveEnd.GONE


@pytest.mark.parametrize(
    "named",
    [
        {"units": i4(1) + b"x"},
        {"units": i4(1) + b"x", "lives": u4(101) + b"x"},
        {"lives": u4(101)[:3]},
        {"length": 0},
        {"length": STRIDE - 1},
        {"length": 1, "units": i4(*[0] * STRIDE)},
        {"length": 1 << 63},
        {"start": 1 << 63, "units": b""},
        {"stride": 1 << 63, "units": i4(0)},
        {"units": b""},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("check", [None, 0])
def test_a_source_that_makes_no_sense_is_gone(opened, named, check) -> None:
    whole = {"memory": SOURCE, "start": 0, "stride": STRIDE, "length": STRIDE, "units": i4(1)}
    source = Strip(**whole | named)
    assert fails(opened, move(source, opened.rig.whole(STRIDE), check=check)) is MoveEnd.GONE


def test_a_layer_is_waited_for(opened) -> None:
    rig = opened.rig
    source = rig.strip(i4(1))
    rig.clock[0] = (6 << 16) | 9

    def device() -> None:
        time.sleep(0.05)
        rig.source[STRIDE : 2 * STRIDE] = 7
        rig.clock[0] = (7 << 16) | 2

    thread = threading.Thread(target=device)
    thread.start()
    done = opened.wire.carry(move(source, rig.whole(STRIDE), step=7, layer=2))
    thread.join()
    assert (rig.target[:STRIDE] == 7).all()
    assert done.duration_ns < 40_000_000


def test_a_later_step_has_all_layers(opened) -> None:
    rig = opened.rig
    rig.clock[0] = 8 << 16
    opened.wire.carry(move(rig.strip(i4(1)), rig.whole(STRIDE), step=7, layer=20))


def test_a_layer_that_does_not_come_is_late(opened) -> None:
    rig = opened.rig
    until = time.monotonic_ns() + 80_000_000
    one = move(rig.strip(i4(1)), rig.whole(STRIDE), step=7, layer=2, deadline=until)
    assert fails(opened, one) is MoveEnd.LATE
    assert time.monotonic_ns() - until < 400_000_000


def test_a_memory_that_leaves_ends_the_wait_for_its_layer(opened) -> None:
    rig = opened.rig
    unmapped = threading.Event()
    threading.Timer(0.05, lambda: rig.sources.remove(SOURCE, unmapped.set)).start()
    one = move(rig.strip(i4(1)), rig.whole(STRIDE), step=7, layer=2)
    assert fails(opened, one) is MoveEnd.GONE
    assert unmapped.wait(2)


def test_a_memory_that_comes_back_is_read_again(opened) -> None:
    rig = opened.rig
    rig.sources.remove(SOURCE)
    one = move(rig.strip(i4(1)), rig.whole(STRIDE))
    assert fails(opened, one) is MoveEnd.GONE
    rig.add_source()
    opened.wire.carry(one)


def test_many_threads_carry_at_once(opened) -> None:
    rig = opened.rig
    failures = []

    def mover(number: int) -> None:
        for unit in range(number, 64, 8):
            target = Strip(TARGET, unit * STRIDE, 0, STRIDE, i4(0))
            source = rig.strip(i4(unit), lives=u4(100 + unit))
            try:
                opened.wire.carry(move(source, target, check=rig.check(source, PART)))
            except WireFailure as failure:
                failures.append(failure)

    movers = [threading.Thread(target=mover, args=(number,)) for number in range(8)]
    for one in movers:
        one.start()
    for one in movers:
        one.join()
    assert not failures
    assert np.array_equal(rig.source, rig.target)


def test_a_closed_wire_carries_nothing(opened) -> None:
    opened.wire.close()
    one = move(opened.rig.strip(i4(1)), opened.rig.whole(STRIDE))
    assert fails(opened, one) is MoveEnd.GONE
