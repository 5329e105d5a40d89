"""What a cache is told of transfers: borrowed blocks, commits, keys of values, lives."""

from array import array

import pytest

from tercet.base.errors import InvariantBroken
from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.cache.identity import keys_of, root_key


def _cache(total=8, first=0):
    return Cache(pool=BlockPool(total, first=first), fingerprint="weights")


TOKENS = array("i", range(16 * 5 + 3))


def test_borrowed_blocks_are_read_and_never_counted():
    cache = _cache()
    holding = cache.hold("", TOKENS)
    cache.borrow(holding, [1000, 1001, 1002, 1003])
    assert cache.extend(holding, 2) == [0, 1]
    assert (holding.borrowed_at, holding.num_borrowed) == (0, 4)
    assert holding.table == [1000, 1001, 1002, 1003, 0, 1]
    assert holding.own_blocks == [0, 1]
    cache.index(holding, TOKENS, computed=len(TOKENS))
    assert cache.peek("", TOKENS) == (0, 0), "its ancestors are blocks of another arena"
    cache.check()
    cache.release(holding, TOKENS, computed=len(TOKENS))
    assert (holding.table, holding.num_borrowed) == ([], 0)
    assert cache.stats().free == 8
    cache.check()


def test_a_hit_goes_before_what_is_borrowed():
    cache = _cache()
    holding = cache.hold("", TOKENS[:33])
    cache.extend(holding, 3)
    cache.release(holding, TOKENS[:33], computed=33)
    holding = cache.hold("", TOKENS)
    cache.borrow(holding, [1002, 1003, 1004])
    cache.extend(holding, 1)
    assert (holding.borrowed_at, holding.num_borrowed) == (2, 3)
    cache.release(holding, TOKENS, computed=len(TOKENS))
    assert cache.stats().cached == 2
    cache.check()


def test_nobody_borrows_twice_behind_private_blocks_or_from_itself():
    cache = _cache(first=100)
    holding = cache.hold("", TOKENS)
    with pytest.raises(InvariantBroken, match="from this pool itself"):
        cache.borrow(holding, [107])
    cache.borrow(holding, [99])
    with pytest.raises(InvariantBroken, match="twice"):
        cache.borrow(holding, [98])
    other = cache.hold("", TOKENS)
    cache.extend(other, 1)
    with pytest.raises(InvariantBroken, match="behind private ones"):
        cache.borrow(other, [98])


def test_what_a_transfer_filled_is_found_like_what_was_computed():
    cache = _cache()
    holding = cache.hold("", TOKENS)
    cache.extend(holding, 5)
    cache.commit(holding, TOKENS, computed=48)
    assert cache.peek("", TOKENS) == (3, 0)
    cache.commit(holding, TOKENS, computed=80)
    assert cache.peek("", TOKENS) == (5, 0)
    with pytest.raises(InvariantBroken, match="not whole blocks"):
        cache.commit(holding, TOKENS, computed=81)
    with pytest.raises(InvariantBroken, match="for 5 blocks"):
        cache.commit(holding, TOKENS, computed=96)


@pytest.mark.parametrize("computed", [0, 16, 48, 80])
def test_keys_of_values_are_the_chain_keys_at_their_ends(computed):
    cache = _cache()
    holding = cache.hold("tenant", TOKENS)
    cache.extend(holding, 6)
    cache.index(holding, TOKENS, computed=computed)
    keys = keys_of(TOKENS, root_key("tenant", "weights"))
    assert cache.keys_for("tenant", TOKENS, 16) == keys
    assert cache.keys_for("tenant", TOKENS, 32) == keys[1:4:2]
    assert cache.keys_for("tenant", TOKENS, 96) == []
    assert cache.keys_for("", TOKENS, 32) != keys[1:4:2]


def test_a_life_begins_whenever_a_block_is_taken():
    cache = _cache(total=1, first=50)
    for life in (1, 2, 3):
        holding = cache.hold(str(life), TOKENS)
        blocks = cache.extend(holding, 1)
        assert cache.refs(blocks) == (bytes(4), life.to_bytes(4, "little"))
        cache.release(holding, TOKENS, computed=16 if life == 2 else 0)


def test_lives_are_u4_wherever_they_leave():
    pool = BlockPool(1)
    pool._generations[0] = 2**32 - 1
    block = pool.take()
    assert pool.lives([block]) == bytes(4)
