"""The block pool against three plain dicts: free, held, cached."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tercet.base.errors import InvariantBroken
from tercet.cache.blocks import BlockPool

PICK = st.integers(0, 10_000)


class PoolRules(RuleBasedStateMachine):
    @initialize(total=st.integers(1, 9), first=st.sampled_from([0, 64]))
    def begin(self, total, first):
        self.pool = BlockPool(total, arena=3, first=first)
        self.blocks = range(first, first + total)
        self.held = {}
        self.cached = []
        self.indexed = {}
        self.refs = {}

    @property
    def free(self):
        return [b for b in self.blocks if b not in self.held and b not in self.cached]

    @precondition(lambda self: self.free)
    @rule()
    def take(self):
        block = self.pool.take()
        assert block in self.free
        ref = self.pool.ref(block)
        former = self.refs.get(block)
        assert former is None or ref.generation == former.generation + 1
        assert former is None or not self.pool.is_current(former)
        self.held[block] = 1
        self.refs[block] = ref

    @precondition(lambda self: not self.free)
    @rule()
    def take_from_nothing(self):
        with pytest.raises(InvariantBroken):
            self.pool.take()

    @rule(pick=PICK)
    def hold(self, pick):
        block = self.blocks[pick % len(self.blocks)]
        if block in self.free:
            with pytest.raises(InvariantBroken):
                self.pool.hold(block)
            return
        self.pool.hold(block)
        if block in self.cached:
            self.cached.remove(block)
        self.held[block] = self.held.get(block, 0) + 1

    @rule(pick=PICK)
    def drop(self, pick):
        block = self.blocks[pick % len(self.blocks)]
        if block not in self.held:
            with pytest.raises(InvariantBroken):
                self.pool.drop(block)
            return
        self.pool.drop(block)
        self.held[block] -= 1
        if not self.held[block]:
            del self.held[block]
            if block in self.indexed:
                self.cached.append(block)

    @rule(pick=PICK)
    def index(self, pick):
        block = self.blocks[pick % len(self.blocks)]
        if block not in self.held or block in self.indexed:
            with pytest.raises(InvariantBroken):
                self.pool.mark_indexed(block)
            return
        self.pool.mark_indexed(block)
        self.indexed[block] = True

    @rule(pick=PICK)
    def touch(self, pick):
        block = self.blocks[pick % len(self.blocks)]
        self.pool.touch(block)
        if block in self.cached:
            self.cached.remove(block)
            self.cached.append(block)

    @rule(pick=PICK, oldest=st.booleans())
    def evict(self, pick, oldest):
        block = self.pool.oldest() if oldest else self.blocks[pick % len(self.blocks)]
        if block is None:
            return
        if block not in self.cached:
            with pytest.raises(InvariantBroken):
                self.pool.evict(block)
            return
        self.pool.evict(block)
        self.cached.remove(block)
        del self.indexed[block]

    @invariant()
    def agrees(self):
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        pool.check()
        assert (pool.num_free, pool.num_held, pool.num_cached) == (
            len(self.free),
            len(self.held),
            len(self.cached),
        )
        assert pool.available == len(self.free) + len(self.cached)
        assert pool.in_order_of_use() == self.cached
        assert pool.oldest() == (self.cached[0] if self.cached else None)
        assert all(pool.holds(b) == self.held.get(b, 0) for b in self.blocks)
        assert all(pool.is_cached(b) == (b in self.cached) for b in self.blocks)
        for block, ref in self.refs.items():
            assert pool.is_current(ref) == (block not in self.free)


TestBlockPool = PoolRules.TestCase
TestBlockPool.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
