import pytest

from tercet.base.errors import InvariantBroken
from tercet.base.ids import BlockRef
from tercet.cache.blocks import BlockPool


def test_a_block_goes_from_free_to_held_to_cached_to_free():
    pool = BlockPool(2)
    block = pool.take()
    pool.mark_indexed(block)
    assert (pool.num_free, pool.num_held, pool.num_cached) == (1, 1, 0)
    pool.drop(block)
    assert (pool.num_free, pool.num_held, pool.num_cached) == (1, 0, 1)
    pool.evict(block)
    assert (pool.num_free, pool.num_held, pool.num_cached) == (2, 0, 0)
    pool.check()


def test_a_reference_to_a_former_life_is_stale():
    pool = BlockPool(1, arena=2, first=100)
    block = pool.take()
    ref = pool.ref(block)
    assert (block, ref) == (100, BlockRef(2, 0, 1))
    assert pool.is_current(ref)
    pool.drop(block)
    assert not pool.is_current(ref), "a free block is nobody's"
    pool.take()
    assert not pool.is_current(ref)
    assert pool.is_current(pool.ref(block))
    assert not pool.is_current(BlockRef(1, 0, 2))
    assert not pool.is_current(BlockRef(2, 1, 2))


def test_cached_blocks_leave_in_order_of_use():
    pool = BlockPool(3)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks:
        pool.mark_indexed(block)
    for block in (blocks[2], blocks[0], blocks[1]):
        pool.drop(block)
    pool.touch(blocks[2])
    assert pool.in_order_of_use() == [blocks[0], blocks[1], blocks[2]]
    pool.hold(blocks[0])
    assert pool.oldest() == blocks[1]


@pytest.mark.parametrize("what", ["free a held block", "hold a free one", "count wrongly"])
def test_what_is_broken_on_purpose_is_caught(what):
    pool = BlockPool(4)
    block = pool.take()
    if what == "free a held block":
        pool._free.append(block)
    elif what == "hold a free one":
        pool._holds[pool._free[0]] = 1
    else:
        pool.num_held += 1
    with pytest.raises(InvariantBroken):
        pool.check()


def test_a_held_block_cannot_be_freed_twice():
    pool = BlockPool(1)
    block = pool.take()
    pool.drop(block)
    with pytest.raises(InvariantBroken, match="nobody holds"):
        pool.drop(block)
    with pytest.raises(InvariantBroken, match="not cached"):
        pool.evict(block)


def test_sums_catch_a_freed_block_at_once():
    pool = BlockPool(4)
    pool._free.append(pool.take())
    with pytest.raises(InvariantBroken, match="not 4"):
        pool.check_sums()
