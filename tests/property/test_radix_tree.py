"""The cache (radix tree and pool together) against a model that knows only whole prefixes.

The model keeps, for every indexed prefix of full blocks, the block that must hold it. It searches
where the cache walks, so it shows what a match, an eviction and a release must do.
"""

from array import array

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.cache.identity import blocks_for

NAMESPACES = ("", "a", "b")


class CacheRules(RuleBasedStateMachine):
    @initialize(total=st.integers(2, 14))
    def begin(self, total):
        self.total = total
        self.cache = Cache(pool=BlockPool(total), fingerprint="weights")
        self.prefixes = {}
        """(namespace, tokens of a prefix) -> its block"""
        self.runs = []
        self.clock = 0
        self.used = {}

    def _canonical(self, namespace, tokens, num_blocks):
        return [self.prefixes.get((namespace, tuple(tokens[: 16 * n + 16]))) for n in num_blocks]

    def _forget_evicted(self, just_held):
        """The cache may have evicted; what it evicted must have been the least recently used."""
        gone = [k for k, block in self.prefixes.items() if block not in self.cache._tree]
        idle = [
            k
            for k, block in self.prefixes.items()
            if self._unheld(block) and block not in just_held
        ]
        kept = [key for key in idle if key not in gone]
        for key in gone:
            assert key in idle, "a held block was evicted"
            assert all(self.used[key] < self.used[other] for other in kept), "not the oldest"
            del self.prefixes[key]

    def _unheld(self, block):
        return all(block not in holding.table for _, _, holding, _ in self.runs)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        letters=st.lists(st.integers(0, 1), min_size=0, max_size=5),
        tail=st.integers(0, 15),
        share=st.sampled_from([True, True, True, False]),
    )
    def begin_run(self, namespace, letters, tail, share):
        tokens = array("i", [letter for letter in letters for _ in range(16)] + [9] * tail)
        if not tokens:
            return
        usable = (len(tokens) - 1) // 16
        want = []
        for block in self._canonical(namespace, tokens, range(usable)):
            if block is None:
                break
            want.append(block)
        unheld = sum(self._unheld(block) for block in want)
        assert self.cache.peek(namespace, tokens) == (len(want), unheld)
        before = self.cache.available
        holding = self.cache.hold(namespace, tokens, share=share)
        assert holding.table == (want if share else [])
        assert len(tokens) > 16 * len(holding.table), "one token at least is left to compute"
        needed = blocks_for(len(tokens)) - len(holding.table)
        new = self.cache.extend(holding, needed)
        room = before - (unheld if share else 0)
        assert (new is None) == (needed > room), "room, and yet none given; or the reverse"
        self._forget_evicted(want if share else [])
        self.runs.append((namespace, tokens, holding, [16 * len(want) if share else 0]))
        if new is None:
            self._end(len(self.runs) - 1, index=False)

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 1000), rows=st.integers(1, 40))
    def compute(self, pick, rows):
        namespace, tokens, holding, computed = self.runs[pick % len(self.runs)]
        computed[0] = min(computed[0] + rows, len(tokens))
        self.cache.index(holding, tokens, computed=computed[0])
        if any(block not in self.cache._tree for block in holding.table[: holding.num_canonical]):
            raise AssertionError("a canonical block is not indexed")
        for n in range(holding.num_canonical):
            key = (namespace, tuple(tokens[: 16 * n + 16]))
            assert self.prefixes.setdefault(key, holding.table[n]) == holding.table[n]

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 1000), index=st.sampled_from([True, True, False]))
    def end_run(self, pick, index):
        self._end(pick % len(self.runs), index=index)

    def _end(self, at, *, index):
        namespace, tokens, holding, computed = self.runs.pop(at)
        table, num_canonical = list(holding.table), holding.num_canonical
        self.cache.release(holding, tokens, computed=computed[0], index=index)
        assert holding.table == []
        num_used = computed[0] // 16 if index else num_canonical
        for n in range(max(num_used, num_canonical) - 1, -1, -1):
            key = (namespace, tuple(tokens[: 16 * n + 16]))
            self.prefixes.setdefault(key, table[n])
            self.clock += 1
            self.used[key] = self.clock

    @invariant()
    def agrees(self):
        if not hasattr(self, "cache"):
            return
        self.cache.check()
        stats = self.cache.stats()
        assert stats.indexed == len(self.prefixes)
        held = {block for _, _, holding, _ in self.runs for block in holding.table}
        assert stats.held == len(held)
        unheld = [block for block in self.prefixes.values() if block not in held]
        assert stats.cached == len(unheld), "what nobody holds can be evicted, all of it"
        assert stats.free + stats.held + stats.cached == self.total


TestRadixTree = CacheRules.TestCase
TestRadixTree.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
