"""What goes first: the least recently used, or what came once, as far as that pays."""

from random import Random

import pytest

from tercet.pool.config import Quota
from tercet.pool.index import NONE, Index
from tercet.pool.lists import Lists
from tercet.pool.policies import POLICIES
from tercet.pool.tiers import Tier

PAGE = 4096


class Shelf:
    """A tier alone, with keys as numbers."""

    def __init__(self, policy: str, pages: int, quotas: dict[int, int] | None = None) -> None:
        self.index = Index()
        self.gone: list[int] = []
        self.tier = Tier(self.index, [pages * PAGE], policy=policy, watermark=1.0, left=self.left)
        self.tier.set_quotas(quotas or {})

    def left(self, entry: int) -> None:
        self.gone.append(self.index.word_b[entry])
        self.index.forget(entry)

    def see(self, number: int, part: int = 0) -> bool:
        """Use it if it is there, else bring it; says whether it was there."""
        entry = self.index.find(number, number)
        if entry != NONE:
            self.tier.use(entry, part)
            return True
        place = self.tier.reserve(PAGE, part)
        if place is not None:
            entry = self.index.add(number, number)
            self.index.size[entry] = PAGE
            self.index.space[entry] = part
            self.tier.commit(entry, place, part)
        return False


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_hold_whatever_is_asked_for(policy: str) -> None:
    rand, shelf = Random(3), Shelf(policy, 20)
    held: list[int] = []
    for _ in range(2000):
        shelf.see(rand.choice([rand.randrange(10), rand.randrange(1000)]))
        entry = rand.choice(list(shelf.index))
        if len(held) < 5 and rand.random() < 0.3:
            shelf.tier.hold(entry, 0)
            held.append(entry)
        elif held and rand.random() < 0.5:
            shelf.tier.release(held.pop(), 0)
        shelf.tier.check()
        shelf.tier.check_sums(0, held)
        assert shelf.tier.segments.used <= 20


def test_lru_evicts_in_the_order_of_use() -> None:
    shelf = Shelf("lru", 3)
    for number in (1, 2, 3, 1, 4, 5):
        shelf.see(number)
    assert shelf.gone == [2, 3]


def test_adaptive_keeps_what_came_again_from_what_comes_once() -> None:
    """A scan over more than the tier holds leaves the others in place; LRU loses them."""
    hits = {}
    for policy in POLICIES:
        shelf = Shelf(policy, 50)
        hits[policy] = 0
        once = 1000
        for _ in range(60):
            hits[policy] += sum(shelf.see(number) for number in range(20))
            for _ in range(60):
                once += 1
                shelf.see(once)
    assert hits["lru"] == 0
    assert hits["adaptive"] > 1000


def test_adaptive_gives_way_when_what_is_new_comes_again() -> None:
    """Popularity moves on: what was frequent once must not stay for ever."""
    shelf = Shelf("adaptive", 50)
    for _ in range(10):
        for number in range(50):
            shelf.see(number)
    for _ in range(40):
        for number in range(100, 145):
            shelf.see(number)
    assert sum(shelf.see(number) for number in range(100, 145)) == 45


def test_a_held_value_stays() -> None:
    shelf = Shelf("lru", 2)
    shelf.see(1)
    entry = shelf.index.find(1, 1)
    shelf.tier.hold(entry, 0)
    for number in range(2, 9):
        shelf.see(number)
    assert shelf.index.find(1, 1) == entry
    shelf.tier.release(entry, 0)
    shelf.see(10)
    shelf.see(11)
    assert shelf.index.find(1, 1) == NONE


def test_all_held_means_no_room_and_no_harm() -> None:
    shelf = Shelf("lru", 2)
    for number in (1, 2):
        shelf.see(number)
        shelf.tier.hold(shelf.index.find(number, number), 0)
    assert shelf.tier.reserve(PAGE, 0) is None
    assert shelf.gone == []


def test_a_part_with_a_quota_evicts_its_own() -> None:
    quota = Quota(namespace="x", dram_bytes=2 * PAGE)
    shelf = Shelf("lru", 10, {1: quota.dram_bytes})
    for number in range(8):
        shelf.see(number)
    for number in range(100, 110):
        shelf.see(number, part=1)
    assert shelf.gone == list(range(100, 108)), "others lost nothing"
    shelf.tier.check()


def test_a_doomed_value_waits_for_its_readers() -> None:
    shelf = Shelf("lru", 2)
    shelf.see(1)
    entry = shelf.index.find(1, 1)
    shelf.tier.hold(entry, 0)
    assert not shelf.tier.drop(entry, 0)
    assert not shelf.tier.has(entry)
    assert shelf.tier.segments.used == 1
    assert shelf.tier.release(entry, 0)
    assert shelf.tier.segments.used == 0


def test_lists_of_a_policy_are_its_own() -> None:
    index = Index()
    lists = Lists(index)
    first, second = POLICIES["lru"](index, lists), POLICIES["lru"](index, lists)
    first.add(index.add(1, 1))
    assert second.victim() == NONE
