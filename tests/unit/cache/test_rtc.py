"""The eight calls: what is found, brought, kept by name, copied and given back."""

from array import array

import pytest

from tercet.base.errors import InvariantBroken
from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.cache.copies import Copies
from tercet.cache.rtc import PopulateState, Rtc

VALUE = 32


def _rtc(total=16):
    return Rtc(Cache(pool=BlockPool(total), fingerprint="weights"), value_tokens=VALUE)


def _tokens(*letters, rest=0):
    """A value of each letter, and some tokens more."""
    return array("i", [letter for letter in letters for _ in range(VALUE)] + [99] * rest)


def _computed(rtc, tokens, namespace=""):
    holding = rtc.alloc_blocks(namespace, tokens)
    rtc.cache.index(holding, tokens, computed=len(tokens))
    return holding


def _stored(rtc, tokens, place="dram", namespace=""):
    for key in rtc.cache.keys_for(namespace, tokens, VALUE):
        rtc.copies.note(key, place)


def test_a_match_goes_on_where_a_copy_is_said_to_be():
    rtc, tokens = _rtc(), _tokens(1, 2, 3, rest=1)
    rtc.free(_computed(rtc, tokens[:33]), tokens[:33], computed=33)
    _stored(rtc, tokens[:64])
    _stored(rtc, tokens[:64], "SSD")
    found = rtc.match_by_prefix("", tokens)
    assert (found.num_here, found.elsewhere) == (2, (("SSD", "dram"),))
    assert rtc.match_by_prefix("other", tokens).elsewhere == ()


def test_the_last_token_is_left_to_compute():
    rtc, tokens = _rtc(), _tokens(1, 2)
    _stored(rtc, tokens)
    assert len(rtc.match_by_prefix("", tokens).elsewhere) == 1
    assert len(rtc.match_by_prefix("", tokens + array("i", [5])).elsewhere) == 2


def test_a_populate_is_indexed_as_it_comes():
    rtc, tokens = _rtc(), _tokens(1, 2, 3, rest=1)
    _stored(rtc, tokens)
    ticket, fetches = rtc.populate("", tokens, count=9)
    assert [(one.place, one.source, len(one.blocks)) for one in fetches] == [
        (0, "dram", 2),
        (1, "dram", 2),
        (2, "dram", 2),
    ]
    assert [one.key for one in fetches] == rtc.cache.keys_for("", tokens, VALUE)
    assert fetches[0].lives == rtc.cache.pool.lives(fetches[0].blocks)
    rtc.moved(ticket, 1, good=True)
    assert rtc.query_populate(ticket).num_here == 0, "what is before it is still missing"
    rtc.moved(ticket, 0, good=True)
    assert rtc.match_by_prefix("", tokens).num_here == 4
    assert rtc.query_populate(ticket).state is PopulateState.UNDER_WAY
    with pytest.raises(InvariantBroken, match="while moves write"):
        rtc.free(ticket)


@pytest.mark.parametrize(("good", "state", "here"), [(True, "done", 6), (False, "short", 4)])
def test_a_populate_ends_with_what_came(good, state, here):
    rtc, tokens = _rtc(), _tokens(1, 2, 3, rest=1)
    _stored(rtc, tokens)
    ticket, _ = rtc.populate("", tokens, count=3)
    for place in range(3):
        rtc.moved(ticket, place, good=good or place != 2)
    assert rtc.query_populate(ticket).state == state
    rtc.free(ticket)
    found = rtc.match_by_prefix("", tokens)
    assert (found.num_here, found.elsewhere) == (here, ())
    stats = rtc.cache.stats()
    assert (stats.held, stats.cached) == (0, here)
    rtc.cache.check()


def test_a_populate_takes_no_room_that_others_need():
    rtc, tokens = _rtc(total=7), _tokens(1, 2, 3, rest=1)
    _stored(rtc, tokens)
    assert rtc.populate("", tokens, count=3, spare=2) is None
    assert rtc.populate("", _tokens(7, 8), count=3) is None, "nobody has it"
    assert rtc.populate("", tokens, count=3, spare=1) is not None
    assert rtc.cache.stats().held == 6


def test_room_for_prefill_and_decode():
    rtc, tokens = _rtc(total=3), _tokens(1, rest=1)
    holding = rtc.alloc_blocks("", tokens)
    assert len(holding.table) == 3
    assert rtc.append_block(holding) is None
    assert rtc.alloc_blocks("", _tokens(2)) is None
    rtc.free(holding)
    assert rtc.cache.stats().free == 3


def test_copies_are_offered_once():
    rtc, tokens = _rtc(), _tokens(1, 2, rest=5)
    holding = _computed(rtc, tokens)
    stores = rtc.copy(holding, tokens, computed=len(tokens))
    assert [one.key for one in stores] == rtc.cache.keys_for("", tokens, VALUE)
    assert stores[1].units == array("i", holding.table[2:4]).tobytes()
    assert rtc.copy(holding, tokens, computed=63) == stores[:1]
    _stored(rtc, tokens)
    assert rtc.copy(holding, tokens, computed=len(tokens)) == []


def test_what_is_about_to_go_is_swapped_out_first():
    rtc = _rtc()
    old, new = _tokens(1, 2, rest=1), _tokens(3, rest=1)
    for tokens in (old, new):
        rtc.free(_computed(rtc, tokens), tokens, computed=len(tokens))
    first, second = rtc.cache.keys_for("", old, VALUE)
    (third,) = rtc.cache.keys_for("", new, VALUE)
    wanted = {first, second, third}

    def plan(wanted, num_blocks):
        return [store.key for _, store in rtc.swap_plan(wanted, num_blocks=num_blocks)]

    assert plan(wanted, 4) == [second, first]
    assert plan(wanted, 2) == [second]
    assert plan({first}, 4) == [first]
    assert plan(wanted, 99) == [second, first, third]
    _, store = next(rtc.swap_plan(wanted, num_blocks=1))
    assert len(store.units) == 4 * 2, "the whole value, though one block of it is the next to go"
    _stored(rtc, old)
    assert plan(wanted, 99) == [third]
    assert plan((), 99) == []


def test_branches_about_to_go_are_swapped_apart_and_by_namespace():
    rtc = _rtc()
    one, other = _tokens(1, 2, rest=1), _tokens(1, 3, rest=1)
    wanted = set()
    for namespace, tokens in (("", one), ("", other), ("tenant", one)):
        rtc.free(_computed(rtc, tokens, namespace), tokens, computed=len(tokens))
        wanted.update(rtc.cache.keys_for(namespace, tokens, VALUE))
    plan = list(rtc.swap_plan(wanted, num_blocks=99))
    assert [namespace for namespace, _ in plan] == ["", "", "", "tenant", "tenant"]
    assert sorted(store.key for _, store in plan) == sorted(wanted)


def test_tasks_that_wait_are_prefetched_while_there_is_room():
    rtc = _rtc(total=7)
    waiting = [("", _tokens(number, number + 10, rest=1)) for number in (1, 2, 3, 4)]
    for _, tokens in (waiting[0], waiting[2]):
        _stored(rtc, tokens)
    assert list(rtc.prefetch_plan(waiting, spare=1)) == [0]
    assert list(rtc.prefetch_plan(waiting, spare=4)) == []
    assert list(rtc.prefetch_plan(waiting[1:], spare=3)) == [1]


def test_what_is_not_moved_may_still_be_there():
    rtc, tokens = _rtc(), _tokens(1, 2, rest=1)
    _stored(rtc, tokens)
    ticket, _ = rtc.populate("", tokens, count=2)
    rtc.moved(ticket, 0, good=True)
    rtc.skip(ticket, 1)
    assert rtc.query_populate(ticket).state is PopulateState.SHORT
    rtc.free(ticket)
    found = rtc.match_by_prefix("", tokens)
    assert (found.num_here, found.elsewhere) == (2, (("dram",),))
    assert (rtc.num_populates, rtc.cache.stats().held) == (0, 0)


def test_a_context_is_found_by_its_name():
    rtc, tokens = _rtc(), _tokens(1, rest=5)
    rtc.names.give("", "rules", tokens)
    assert rtc.match_by_id("", "rules").num_here == 0
    rtc.free(_computed(rtc, tokens), tokens, computed=len(tokens))
    found = rtc.match_by_id("", "rules")
    assert (found.tokens, found.num_here, found.tail) == (tokens, 2, None)
    assert rtc.match_by_id("tenant", "rules") is None
    rtc.names.drop("", "rules")
    assert rtc.match_by_id("", "rules") is None


def test_a_pinned_context_stays_with_its_tail():
    rtc, tokens = _rtc(total=8), _tokens(1, rest=5)
    holding = _computed(rtc, tokens)
    assert rtc.names.pin("rules", holding, tokens, computed=len(tokens))
    other = rtc.alloc_blocks("", array("i", range(100, 180)))
    assert rtc.append_block(other) is None, "all the rest is taken"
    found = rtc.match_by_id("", "rules")
    assert found.num_here == 2
    assert (found.tail.block, found.tail.num_tokens) == (holding.table[2], 5)
    assert rtc.names.held_blocks() == holding.table
    rtc.names.drop("", "rules")
    assert (rtc.cache.stats().cached, rtc.names.num_pinned) == (2, 0)
    rtc.cache.check()


def test_names_and_pins_are_bounded():
    rtc, tokens = _rtc(total=8), _tokens(1, 2, 3)
    holding = _computed(rtc, tokens)
    assert not rtc.names.pin("all", holding, tokens, computed=len(tokens))
    rtc.free(holding)
    rtc.names._num_names_max = 2
    small = _computed(rtc, _tokens(4))
    assert rtc.names.pin("kept", small, _tokens(4), computed=32)
    for name in ("a", "b", "c"):
        rtc.names.give("", name, tokens)
    assert rtc.match_by_id("", "kept") is not None
    assert rtc.match_by_id("", "a") is None
    assert len(rtc.names) == 2


def test_hints_are_bounded_and_can_be_forgotten():
    copies = Copies(num_keys_max=2)
    for key in (b"a", b"b", b"c"):
        copies.note(key, "dram")
    assert (b"a" in copies, len(copies)) == (False, 2)
    copies.note(b"b", "SSD")
    assert copies.places(b"b") == ("SSD", "dram")
    copies.lost(b"b", "SSD")
    copies.lost(b"c", "SSD")
    assert (copies.places(b"b"), copies.places(b"c")) == (("dram",), ("dram",))
    copies.note(b"c", "SSD")
    copies.forget(["dram"])
    assert (copies.places(b"b"), copies.places(b"c")) == ((), ("SSD",))
    copies.forget()
    assert not len(copies)
