from array import array

import pytest

from tercet.base.errors import InvariantBroken
from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache


def _cache(total=8):
    return Cache(pool=BlockPool(total), fingerprint="weights")


def _tokens(*runs):
    """`(letter, count)` pairs as tokens."""
    return array("i", [letter for letter, count in runs for _ in range(count)])


def _compute(cache, tokens, *, namespace="", computed=None):
    """Hold, take what is missing and note it as computed."""
    holding = cache.hold(namespace, tokens)
    assert cache.extend(holding, -(-len(tokens) // 16) - len(holding.table)) is not None
    done = len(tokens) if computed is None else computed
    cache.index(holding, tokens, computed=done)
    cache.check()
    return holding


def test_computed_full_blocks_are_found_while_they_are_held():
    cache = _cache()
    tokens = _tokens((1, 16), (2, 16), (3, 5))
    first = _compute(cache, tokens)
    second = cache.hold("", tokens)
    assert second.table == first.table[:2], "the partial tail is nobody else's"
    assert cache.peek("", tokens) == (2, 0)


def test_a_full_hit_leaves_the_last_token_to_compute():
    cache = _cache()
    tokens = _tokens((1, 16), (2, 16))
    cache.release(_compute(cache, tokens), tokens, computed=32)
    assert len(cache.hold("", tokens).table) == 1
    assert len(cache.hold("", _tokens((1, 16), (2, 17))).table) == 2


def test_uncomputed_blocks_are_not_found():
    """sglang PR#31881, #27504: a hit that is longer than what was computed gives garbled text."""
    cache = _cache()
    tokens = _tokens((1, 16), (2, 16), (3, 1))
    holding = _compute(cache, tokens, computed=31)
    assert cache.peek("", tokens) == (1, 0)
    cache.release(holding, tokens, computed=31)
    assert cache.stats().cached == 1


def test_a_release_without_index_keeps_nothing_new():
    cache = _cache()
    tokens = _tokens((1, 33))
    holding = cache.hold("", tokens)
    cache.extend(holding, 3)
    cache.release(holding, tokens, computed=33, index=False)
    assert cache.stats().free == 8


def test_whoever_does_not_share_hits_nothing_and_leaves_its_blocks():
    cache = _cache()
    tokens = _tokens((1, 17))
    cache.release(_compute(cache, tokens), tokens, computed=17)
    holding = cache.hold("", tokens, share=False)
    assert holding.table == []
    cache.extend(holding, 2)
    cache.index(holding, tokens, computed=17)
    assert holding.forked
    cache.release(holding, tokens, computed=17)
    cache.check()
    assert cache.stats().cached == 1


def test_what_a_fork_computed_beyond_joins_at_its_release():
    """Two tasks compute the same first block at once; the second goes on alone."""
    cache = _cache()
    short, long = _tokens((1, 17)), _tokens((1, 16), (2, 16), (3, 1))
    one, other = cache.hold("", short), cache.hold("", long)
    cache.extend(one, 2)
    cache.extend(other, 3)
    cache.index(one, short, computed=17)
    cache.index(other, long, computed=33)
    assert other.forked
    assert cache.peek("", long) == (1, 0)
    cache.release(one, short, computed=17)
    assert cache.available == 8 - 3, "what a fork holds is no ancestor of a cached block"
    cache.release(other, long, computed=33)
    cache.check()
    assert cache.peek("", long) == (2, 2)
    assert cache.stats().held == 0


def test_the_least_recently_used_leaf_is_evicted_first():
    cache = _cache(4)
    old, new = _tokens((1, 16), (2, 17)), _tokens((3, 16), (4, 17))
    for tokens in (old, new):
        cache.release(_compute(cache, tokens[:32]), tokens, computed=32)
    assert cache.stats().cached == 4
    cache.release(cache.hold("", old[:17]), old, computed=16)  # uses the first block of `old`
    taker = cache.hold("", _tokens((9, 1)))
    cache.extend(taker, 1)
    assert cache.peek("", old) == (1, 1), "the leaf that nobody used for longest"
    cache.extend(taker, 1)
    assert cache.peek("", new) == (1, 1)
    cache.extend(taker, 1)
    assert cache.peek("", new) == (0, 0), "the ancestor that was used again stays"
    cache.check()


def test_whatever_is_evictable_is_evicted():
    """sglang#30532, #3752, #7553, Mooncake#2187: `evictable`, yet nothing was evicted."""
    cache = _cache(12)
    for letter in range(1, 7):
        tokens = _tokens((letter, 16), (letter + 50, 16), (99, 3))
        cache.release(_compute(cache, tokens), tokens, computed=34)
        assert cache.stats().free + cache.stats().cached == 12
    promised = cache.available
    taker = cache.hold("", _tokens((1000, 1)))
    assert cache.extend(taker, promised) is not None
    assert cache.stats().cached == cache.available == 0
    assert cache.extend(taker, 1) is None
    assert len(taker.table) == promised
    cache.check()


def test_no_room_changes_nothing():
    cache = _cache(2)
    tokens = _tokens((1, 17))
    cache.release(_compute(cache, tokens), tokens, computed=17)
    before = cache.stats()
    holding = cache.hold("", _tokens((2, 1)))
    assert cache.extend(holding, 3) is None
    assert holding.table == []
    assert cache.stats().cached == before.cached


def test_a_freed_block_that_a_task_holds_is_caught():
    cache = _cache()
    tokens = _tokens((1, 17))
    holding = _compute(cache, tokens)
    cache.pool.drop(holding.table[1])
    with pytest.raises(InvariantBroken):
        cache.release(holding, tokens, computed=17)


def test_an_ancestor_that_would_leave_before_its_child_is_caught():
    cache = _cache()
    tokens = _tokens((1, 16), (2, 17))
    cache.release(_compute(cache, tokens), tokens, computed=33)
    cache.pool.touch(cache.pool.in_order_of_use()[0])
    with pytest.raises(InvariantBroken, match="older than its descendant"):
        cache.check()


def test_hits_and_evictions_are_counted():
    cache = _cache(2)
    tokens = _tokens((1, 17))
    cache.release(_compute(cache, tokens), tokens, computed=17)
    cache.release(_compute(cache, tokens), tokens, computed=17)
    other = _tokens((2, 32))
    _compute(cache, other)
    stats = cache.stats()
    assert (stats.tokens_asked, stats.tokens_hit, stats.evictions) == (17 + 17 + 32, 16, 1)
