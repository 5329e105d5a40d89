"""The disk wire: a value there and back, aligned or not; disks that are full, broken, gone."""

import os

import numpy as np
import pytest
from wire_cases import i4

from tercet.messages.effects import Move
from tercet.messages.events import MoveEnd
from tercet.messages.kv import Strip
from tercet.wires.contract import Plane, Region, WireFailure
from tercet.wires.disk import DiskWire
from tercet.wires.regions import Regions
from tercet.wires.slab import BUFFER_BYTES, Slab
from tercet.wires.sums import fold_of

DISK, DRAM = "near/disk/0", "near/dram/0"
SIZE = 32 << 20
HEAD = b"a slab of tests\n"
PART = 500


class Rig:
    def __init__(self, path) -> None:
        self.slab = Slab(path, SIZE, head=HEAD, notes_size=8192)
        room = np.zeros(3 * BUFFER_BYTES + 4096, np.uint8)
        self.memory = room[-room.ctypes.data % 4096 :][: 3 * BUFFER_BYTES]
        region = Region(
            memory=DRAM, address=self.memory.ctypes.data, size=self.memory.nbytes, writable=True
        )
        self.address = region.address
        self.wire = DiskWire(Regions((region,)), DISK, self.slab, lambda label: 4096 + label[0])

    def strip(self, start: int, size: int) -> Strip:
        return Strip(DRAM, start, size, size, i4(0))

    def fill(self, start: int, size: int, part: int = PART) -> int:
        self.memory[start : start + size] = np.random.default_rng(1).integers(
            0, 256, size, dtype=np.uint8
        )
        return fold_of(self.address, self.strip(start, size), part)

    def carry(self, source: Strip, target: Strip, **fields):
        one = Move(ticket=1, source=source, target=target, **{"part_bytes": PART} | fields)
        assert self.wire.reaches(one)
        return self.wire.carry(one)


def extent(at: int, size: int) -> Strip:
    return Strip(DISK, at, size, size, i4(0))


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path / "slab")
    yield rig
    rig.slab.close()


@pytest.mark.parametrize("size", [500, 4096 * 125, 70_000, BUFFER_BYTES // 500 * 500 + 5000])
@pytest.mark.parametrize("start", [0, 4096, 77])
def test_a_value_comes_back_as_it_was(rig, size, start) -> None:
    check = rig.fill(start, size)
    expected = rig.memory[start : start + size].copy()
    done = rig.carry(rig.strip(start, size), extent(8 << 20, size), check=check)
    assert (done.size, done.fold) == (size, check)
    rig.memory[:] = 0
    other = 4096 if start == 77 else 33
    rig.carry(extent(8 << 20, size), rig.strip(other, size), check=check)
    assert np.array_equal(rig.memory[other : other + size], expected)
    assert not rig.memory[:other].any()
    assert not rig.memory[other + size :].any()


def test_parts_of_which_no_number_fills_units_of_the_disk_come_back_too(rig) -> None:
    part = 4099
    size = part * (BUFFER_BYTES // part + 7)
    check = rig.fill(5, size, part)
    expected = rig.memory[5 : 5 + size].copy()
    there = rig.carry(rig.strip(5, size), extent(8 << 20, size), check=check, part_bytes=part)
    rig.memory[:] = 0
    back = rig.carry(extent(8 << 20, size), rig.strip(0, size), check=check, part_bytes=part)
    assert there.fold == back.fold == check
    assert np.array_equal(rig.memory[:size], expected)


@pytest.mark.parametrize("size", [9000, BUFFER_BYTES + 12_000])
def test_what_memory_lost_does_not_become_a_value(rig, size) -> None:
    size = size // PART * PART
    check = rig.fill(0, size)
    rig.memory[size - 7] ^= 1
    with pytest.raises(WireFailure) as failure:
        rig.carry(rig.strip(0, size), extent(8192, size), check=check, label=b"\7label")
    assert failure.value.end is MoveEnd.CORRUPT
    assert not any(b"".join(rig.slab.notes(4096, 4096)))


def test_it_belongs_to_the_storage_plane(rig) -> None:
    assert rig.wire.plane is Plane.STORAGE
    assert rig.slab.direct in {True, False}


def test_neighbours_on_the_disk_stay_as_they_are(rig) -> None:
    first = rig.fill(0, 4500)
    rig.carry(rig.strip(0, 4500), extent(8192, 4500), check=first)
    second = rig.fill(5000, 9000)
    rig.carry(rig.strip(5000, 9000), extent(8192 + 8192, 9000), check=second)
    rig.carry(extent(8192, 4500), rig.strip(0, 4500), check=first)
    rig.carry(extent(16384, 9000), rig.strip(0, 9000), check=second)


def test_a_broken_sector_is_corrupt(rig) -> None:
    check = rig.fill(0, 9000)
    rig.carry(rig.strip(0, 9000), extent(8192, 9000), check=check)
    with rig.slab.path.open("r+b") as file:
        file.seek(8192 + 100)
        file.write(b"\x00\x01\x02")
        file.flush()
        os.fsync(file.fileno())
    with pytest.raises(WireFailure) as failure:
        rig.carry(extent(8192, 9000), rig.strip(0, 9000), check=check)
    assert failure.value.end is MoveEnd.CORRUPT


def test_labels_survive_and_another_head_begins_anew(rig, tmp_path) -> None:
    check = rig.fill(0, 500)
    rig.carry(rig.strip(0, 500), extent(8192, 500), check=check, label=b"\7label")
    again = Slab(tmp_path / "slab", SIZE, head=HEAD, notes_size=8192)
    assert b"".join(again.notes(4096, 4096))[7:13] == b"\7label"
    again.close()
    other = Slab(tmp_path / "slab", SIZE, head=b"a slab 2\n", kind=b"a slab", notes_size=8192)
    assert not any(b"".join(other.notes(4096, 4096)))
    other.close()


@pytest.mark.parametrize("lost", ["slab", "slab.notes"])
def test_where_one_file_is_lost_the_other_is_begun_anew(rig, tmp_path, lost) -> None:
    check = rig.fill(0, 500)
    rig.carry(rig.strip(0, 500), extent(8192, 500), check=check, label=b"\7label")
    (tmp_path / lost).unlink()
    again = Slab(tmp_path / "slab", SIZE, head=HEAD, notes_size=8192)
    assert not any(b"".join(again.notes(4096, 4096)))
    again.close()
    assert not any((tmp_path / "slab").read_bytes()[8192:9000])


@pytest.mark.parametrize("name", ["slab", "slab.notes"])
@pytest.mark.parametrize("content", [b"dear diary, today\n" * 9999, b"x", bytes(9999), HEAD[:-1]])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, name, content) -> None:
    """A mistyped path costs a start, not the file."""
    path = tmp_path / name
    path.write_bytes(content)
    for kind in (None, b"a slap"):
        with pytest.raises(OSError, match=f"{name} holds something else"):
            Slab(tmp_path / "slab", SIZE, head=HEAD, kind=kind, notes_size=8192)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == [name], "and nothing is made beside it"


def test_what_a_start_left_half_made_is_made_whole(tmp_path, monkeypatch) -> None:
    def refuse(*_):
        raise OSError(28, os.strerror(28))

    path = tmp_path / "slab"
    with monkeypatch.context() as context:
        context.setattr(os, "posix_fallocate", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                Slab(path, SIZE, head=HEAD, notes_size=8192)
    Slab(path, SIZE, head=HEAD, notes_size=8192).close()
    stat = path.stat()
    assert stat.st_size == SIZE
    assert stat.st_blocks * 512 >= SIZE, "there is room for all of it"
    Slab(path, SIZE // 2, head=HEAD, notes_size=8192).close()
    assert path.stat().st_size == SIZE // 2


def test_bytes_outside_the_slab_are_gone(rig) -> None:
    check = rig.fill(0, 9000)
    with pytest.raises(WireFailure) as failure:
        rig.carry(rig.strip(0, 9000), extent(SIZE - 4096, 9000), check=check)
    assert failure.value.end is MoveEnd.GONE


@pytest.mark.parametrize(
    ("code", "end"), [(28, MoveEnd.FULL), (30, MoveEnd.FULL), (5, MoveEnd.GONE)]
)
def test_what_the_system_says_is_told(rig, monkeypatch, code, end) -> None:
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwritev", refuse)
    check = rig.fill(0, 9000)
    with pytest.raises(WireFailure) as failure:
        rig.carry(rig.strip(0, 9000), extent(8192, 9000), check=check)
    assert failure.value.end is end


def test_a_slab_that_was_cut_short_is_gone(rig) -> None:
    os.truncate(rig.slab.path, 8192)
    with pytest.raises(WireFailure) as failure:
        rig.carry(extent(8192, 9000), rig.strip(0, 9000), check=1)
    assert failure.value.end is MoveEnd.GONE


def test_a_filesystem_without_o_direct_is_served_through_the_page_cache(tmp_path, monkeypatch):
    real = os.open

    def picky(path, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", picky)
    rig = Rig(tmp_path / "slab")
    assert not rig.slab.direct
    check = rig.fill(3, 9000)
    rig.carry(rig.strip(3, 9000), extent(8192, 9000), check=check)
    rig.carry(extent(8192, 9000), rig.strip(0, 9000), check=check)
    rig.slab.close()
