"""Arenas at fixed places of one range."""

import errno
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from tercet.base.errors import InvariantBroken
from tercet.engine.memory import AddressRange, arena_layout, make_arena, private_memory

SHAPES = [(1,), (2, 2, 3, 16, 8), (5, 7), (30, 2, 3, 16, 64)]


def size_of(shape):
    return 4 * int(np.prod(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_blocks", [1, 7, 300])
def test_an_arena_is_whole_pages_and_blocks(shape, num_blocks):
    layout = arena_layout(size_of(shape), num_blocks)
    assert layout.size_bytes % mmap.PAGESIZE == 0
    assert layout.size_bytes == layout.blocks_per_arena * layout.block_bytes
    assert layout.directory_bytes + num_blocks * layout.block_bytes <= layout.size_bytes
    assert layout.directory_bytes >= 64 + 16 * num_blocks
    assert layout.directory_bytes % mmap.PAGESIZE == 0


@pytest.fixture
def arenas():
    """Two processes' views would be two ranges; here both are in one process."""
    layout = arena_layout(size_of((3, 5)), 10)
    descriptors = [make_arena(f"test-{index}", layout) for index in range(2)]
    mine = AddressRange.reserve(layout, block_shape=(3, 5), num_arenas=4)
    theirs = AddressRange.reserve(layout, block_shape=(3, 5), num_arenas=4)
    mine.map_arena(0, descriptors[0], writable=True)
    mine.map_arena(2, descriptors[1], writable=False)
    theirs.map_arena(2, descriptors[1], writable=True)
    theirs.map_arena(0, descriptors[0], writable=False)
    for descriptor in descriptors:
        os.close(descriptor)
    yield mine, theirs, layout
    mine.close()
    theirs.close()


def test_a_block_id_names_the_same_block_in_every_process(arenas):
    mine, theirs, layout = arenas
    mine.blocks[3] = 1.5
    theirs.blocks[2 * layout.blocks_per_arena + 9] = np.arange(15).reshape(3, 5)
    assert (theirs.blocks[3] == 1.5).all()
    assert mine.blocks[2 * layout.blocks_per_arena + 9, 2, 4] == 14.0
    assert list(mine.own_blocks) == list(range(10))
    first = 2 * layout.blocks_per_arena
    assert list(theirs.own_blocks) == list(range(first, first + 10))
    assert mine.num_ids == 3 * layout.blocks_per_arena + 10


def test_blocks_and_directory_do_not_overlap(arenas):
    mine, theirs, _ = arenas
    mine.blocks[:10] = -1.0
    theirs.blocks[list(theirs.own_blocks)] = -1.0
    for memory, arena in ((mine, 0), (theirs, 2)):
        for entries in (memory.generations, memory.fills, memory.checksums):
            assert not entries(arena).any()
            entries(arena)[:] = 77
    assert (mine.blocks[:10] == -1.0).all()
    assert (mine.blocks[list(theirs.own_blocks)] == -1.0).all()
    assert (mine.generations(2) == 77).all()


def test_lives_are_told_where_all_can_read_them(arenas):
    mine, theirs, layout = arenas
    mine.renew(np.array([4, 9]), np.array([1, 1], np.uint32))
    mine.renew(np.array([4]), np.array([3], np.uint32))
    mine.renew(np.array([], np.int64), np.array([], np.uint32))
    assert theirs.generations(0).tolist() == [0, 0, 0, 0, 3, 0, 0, 0, 0, 1]
    with pytest.raises(InvariantBroken, match="not mapped for writing"):
        mine.renew(np.array([2 * layout.blocks_per_arena]), np.array([1], np.uint32))


def test_an_arena_can_be_replaced(arenas):
    mine, _, layout = arenas
    mine.unmap_arena(2)
    with pytest.raises(InvariantBroken, match="not mapped"):
        mine.generations(2)
    descriptor = make_arena("test-new", layout)
    mine.map_arena(2, descriptor, writable=False)
    os.close(descriptor)
    assert mine.generations(2).tolist() == [0] * 10


@pytest.mark.parametrize("other", [arena_layout(60, 11), arena_layout(60, 2000)])
def test_an_arena_of_another_layout_is_refused(arenas, other):
    mine, _, _ = arenas
    descriptor = make_arena("test-other", other)
    with pytest.raises(InvariantBroken, match="an arena"):
        mine.map_arena(1, descriptor, writable=True)
    os.close(descriptor)


def test_wrong_calls_stop_the_process(arenas):
    mine, _, layout = arenas
    descriptor = make_arena("test-again", layout)
    for arena in (0, 4, -1):
        with pytest.raises(InvariantBroken):
            mine.map_arena(arena, descriptor, writable=True)
    os.close(descriptor)
    with pytest.raises(InvariantBroken, match="blocks"):
        AddressRange.reserve(layout, block_shape=(3, 4))


def test_private_memory_is_zero_and_closes_once():
    memory = private_memory((4, 16), 5)
    assert memory.blocks.shape == (5, 4, 16)
    assert not memory.blocks.any()
    memory.close()
    with pytest.raises(InvariantBroken, match="twice"):
        memory.close()


def test_memory_that_is_not_to_be_had_is_told_and_leaves_no_descriptor(monkeypatch):
    def refuse(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="no room"):
        make_arena("test-refused", arena_layout(64, 10))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_more_memory_than_the_machine_has_is_refused_before_anything_is_made(monkeypatch):
    def touched(*_):
        raise AssertionError("the arena was begun")

    monkeypatch.setattr(os, "memfd_create", touched)
    with pytest.raises(OSError, match="not enough memory"):
        make_arena("test-huge", arena_layout(1 << 30, 1 << 20))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_blocks_have_the_type_that_the_device_says(dtype):
    memory = private_memory((3, 64), 5, dtype=dtype)
    size = 3 * 64 * np.dtype(dtype).itemsize
    assert memory.layout.block_bytes == size
    assert memory.blocks.dtype == memory.dtype == dtype
    assert memory.blocks[0].nbytes == size
    memory.blocks[4] = 7
    assert (memory.blocks[3] == 0).all()
    assert (memory.blocks[4] == 7).all()
    memory.close()


def test_a_layout_of_other_blocks_is_refused():
    layout = arena_layout(3 * 5, 4)
    with pytest.raises(InvariantBroken, match="float32"):
        AddressRange.reserve(layout, block_shape=(3, 5))
    AddressRange.reserve(layout, block_shape=(3, 5), dtype=np.uint8).close()
