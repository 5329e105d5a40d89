"""The RTC under any order of calls: nothing leaks, nothing is found that did not come."""

from array import array

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.cache.identity import keys_of, root_key
from tercet.cache.rtc import PopulateState, Rtc

VALUE, BLOCKS = 32, 24
SEQUENCES = [
    array("i", [letter for letter in letters for _ in range(16)] + [9] * rest)
    for letters, rest in [((1, 2, 3, 4, 5, 6), 1), ((1, 2, 3, 8), 3), ((7, 2, 3, 4), 1), ((1,), 5)]
]
TOKENS = st.sampled_from(SEQUENCES)
PLACES = st.sampled_from(["dram", "SSD"])


class Calls(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.rtc = Rtc(Cache(pool=BlockPool(BLOCKS), fingerprint="w"), value_tokens=VALUE)
        self.holdings = []
        self.tickets = {}
        self.there = {}
        """Keys of blocks that were computed or brought here, whether still here or not."""

    def came(self, tokens, count):
        for key in keys_of(tokens, root_key("", "w"))[:count]:
            self.there[key] = True

    @rule(tokens=TOKENS)
    def alloc(self, tokens):
        holding = self.rtc.alloc_blocks("", tokens)
        if holding is not None:
            self.holdings.append((holding, tokens))

    @precondition(lambda self: self.holdings)
    @rule(data=st.data())
    def grow(self, data):
        holding, _ = data.draw(st.sampled_from(self.holdings))
        before = len(holding.table)
        block = self.rtc.append_block(holding)
        assert (block is None) == (len(holding.table) == before)

    @precondition(lambda self: self.holdings)
    @rule(data=st.data(), computed=st.integers(0, 97))
    def end(self, data, computed):
        at = data.draw(st.integers(0, len(self.holdings) - 1))
        holding, tokens = self.holdings.pop(at)
        computed = max(min(computed, len(tokens)), 16 * holding.num_canonical)
        for store in self.rtc.copy(holding, tokens, computed=computed):
            assert store.key in self.rtc.cache.keys_for("", tokens[:computed], VALUE)
        self.came(tokens, computed // 16)
        self.rtc.free(holding, tokens, computed)

    @rule(tokens=TOKENS, place=PLACES, data=st.data())
    def stored(self, tokens, place, data):
        keys = self.rtc.cache.keys_for("", tokens, VALUE)
        for key in keys[: data.draw(st.integers(0, len(keys)))]:
            self.rtc.copies.note(key, place)

    @rule(tokens=TOKENS, spare=st.integers(0, 4))
    def populate(self, tokens, spare):
        begun = self.rtc.populate("", tokens, count=3, spare=spare)
        if begun is not None:
            ticket, fetches = begun
            assert self.rtc.cache.available >= spare
            self.tickets[ticket] = (tokens, fetches)

    @rule(waiting=st.lists(TOKENS, max_size=3))
    def prefetch(self, waiting):
        for place in self.rtc.prefetch_plan([("", one) for one in waiting], spare=2):
            found = self.rtc.match_by_prefix("", waiting[place])
            assert found.elsewhere
            assert 2 * len(found.elsewhere) + 2 <= self.rtc.cache.available

    @precondition(lambda self: any(fetches for _, fetches in self.tickets.values()))
    @rule(data=st.data(), good=st.sampled_from([True, False, None]))
    def move(self, data, good):
        under_way = [ticket for ticket, (_, fetches) in self.tickets.items() if fetches]
        ticket = data.draw(st.sampled_from(under_way))
        tokens, fetches = self.tickets[ticket]
        fetch = fetches.pop(data.draw(st.integers(0, len(fetches) - 1)))
        if good:
            keys = keys_of(tokens, root_key("", "w"))
            end = keys.index(fetch.key) + 1
            for key in keys[end - VALUE // 16 : end]:
                self.there[key] = True
        if good is None:
            self.rtc.skip(ticket, fetch.place)
        else:
            self.rtc.moved(ticket, fetch.place, good=good)

    @precondition(lambda self: any(not fetches for _, fetches in self.tickets.values()))
    @rule(data=st.data())
    def freed(self, data):
        ended = [ticket for ticket, (_, fetches) in self.tickets.items() if not fetches]
        ticket = data.draw(st.sampled_from(ended))
        assert self.rtc.query_populate(ticket).state is not PopulateState.UNDER_WAY
        self.rtc.free(ticket)
        del self.tickets[ticket]

    @precondition(lambda self: self.holdings)
    @rule(data=st.data(), name=st.sampled_from("abc"))
    def pin(self, data, name):
        at = data.draw(st.integers(0, len(self.holdings) - 1))
        holding, tokens = self.holdings[at]
        if self.rtc.names.pin(name, holding, tokens, computed=len(tokens)):
            self.came(tokens, len(tokens) // 16)
            del self.holdings[at]

    @rule(name=st.sampled_from("abc"), tokens=TOKENS, drop=st.booleans())
    def name(self, name, tokens, drop):
        if drop:
            self.rtc.names.drop("", name)
        else:
            self.rtc.names.give("", name, tokens)
            assert self.rtc.match_by_id("", name).tokens == tokens

    @rule(most=st.integers(0, BLOCKS))
    def swap(self, most):
        wanted = list(self.there)[::2]
        cached = self.rtc.cache.pool.in_order_of_use(most)
        for namespace, store in self.rtc.swap_plan(wanted, num_blocks=most):
            assert not namespace
            assert store.key in wanted
            assert store.key not in self.rtc.copies
            assert len(store.units) == len(store.lives) == 4 * VALUE // 16
            assert array("i", store.units)[-1] in cached

    @invariant()
    def what_is_found_came_and_what_is_held_is_counted(self):
        for tokens in SEQUENCES:
            found = self.rtc.match_by_prefix("", tokens)
            keys = keys_of(tokens, root_key("", "w"))
            assert all(key in self.there for key in keys[: found.num_here])
        self.rtc.cache.check()
        held = [*self.rtc.held_blocks(), *(b for one, _ in self.holdings for b in one.table)]
        counts = {block: held.count(block) for block in held}
        pool = self.rtc.cache.pool
        assert len(counts) == pool.num_held
        assert all(pool.holds(block) == count for block, count in counts.items())


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
