"""The pool as executors see it, one story a test; the field's failures first (docs/cache.md)."""

from pool_world import PAGE, PoolWorld, key_of, tag_of, world

from tercet.base.ids import Address
from tercet.messages.events import MoveEnd
from tercet.messages.kv import PoolFind, PoolFound
from tercet.pool.placement import ranked

CHAIN = list(range(6))


def contents(numbers: list[int], namespace: str = "n") -> list[int]:
    return [tag_of(namespace, key_of(number)) for number in numbers]


# what the field's pools got wrong


def test_lmcache_4385_a_namespace_never_reads_what_another_stored() -> None:
    """LMCache#4385. From either tier, with the very same key."""
    pool = world(pages=8, disk=64)
    pool.put("a", CHAIN, namespace="one")
    pool.run(100)
    assert pool.tiers("a", CHAIN, namespace="one") == "dddddd"
    assert pool.tiers("a", CHAIN, namespace="two") == ""
    pool.put("a", CHAIN, namespace="two")
    pool.run(100)
    assert pool.read("a", CHAIN, namespace="one") == contents(CHAIN, "one")
    assert pool.read("a", CHAIN, namespace="two") == contents(CHAIN, "two")
    pool.kill("a")
    pool.start("a", labels=dict(pool.hosts["a"].labels))
    pool.members()
    for space in ("one", "two"):
        assert pool.read("a", CHAIN, namespace=space) == contents(CHAIN, space)


def test_lmcache_900_651_a_full_pool_evicts_and_a_restarted_one_answers() -> None:
    """LMCache#900, #651."""
    pool = world(pages=8)
    for first in range(0, 100, 4):
        put = pool.put("a", list(range(first, first + 4)))
        pool.run(100)
        assert pool.reader("a").stored[put] == 4, "it stopped to take anything"
    assert pool.tiers("a", list(range(96, 100))) == "dddd"
    assert pool.tiers("a", [0]) == ""
    pool.kill("a")
    pool.start("a")
    pool.members()
    assert pool.tiers("a", list(range(96, 100))) == "", "a miss, at once"


def test_sglang_27504_a_restored_value_is_verified_before_anybody_reads_it() -> None:
    """sglang#27504."""
    pool = world(pages=8, disk=64)
    pool.put("a", CHAIN)
    pool.run(200)
    for place in pool.bytes:
        if "/disk/" in place[0] and pool.bytes[place] == contents(CHAIN)[2]:
            pool.bytes[place] = 12345  # a byte of the third value turns over
    pool.kill("a")
    pool.start("a", labels=dict(pool.hosts["a"].labels))
    pool.members()
    assert pool.tiers("a", CHAIN) == "ssssss"
    assert pool.read("a", CHAIN) == [c if n != 2 else None for n, c in enumerate(contents(CHAIN))]
    assert pool.names("pool.corrupt") == 1
    assert pool.tiers("a", CHAIN) == "dd", "it is not found again"


def test_sglang_27504_a_label_of_another_life_of_its_place_is_a_miss() -> None:
    """sglang#27504. Old data under a new label, or the other way round: the sum shows it."""
    pool = world(pages=8, disk=64)
    pool.put("a", [1])
    pool.run(200)
    (place,) = [place for place in pool.bytes if "/disk/" in place[0]]
    pool.bytes[place] = tag_of("n", key_of(99))
    pool.kill("a")
    pool.start("a", labels=dict(pool.hosts["a"].labels))
    pool.members()
    assert pool.read("a", [1]) == [None]


def test_sglang_31881_what_was_found_and_is_gone_when_wanted_is_said_to_be_gone() -> None:
    """sglang PR#31881."""
    pool = world(pages=8)
    pool.put("a", CHAIN)
    pool.run(100)
    ask = pool.find("a", CHAIN)
    pool.settle()
    assert pool.reader("a").found[ask].tiers == "dddddd"
    pool.put("a", list(range(100, 108)))
    pool.run(100)
    pool.want("a", ask, 6)
    pool.settle()
    assert list(pool.reader("a").ready[ask].values()) == [None] * 6


def test_sglang_9927_a_prefetch_that_nobody_awaits_any_more_leaves_nothing_held() -> None:
    """sglang PR#9927."""
    pool = world(pages=8, disk=64)
    pool.put("a", CHAIN)
    pool.run(200)
    pool.kill("a")
    pool.start("a", labels=dict(pool.hosts["a"].labels))
    pool.members()
    ask = pool.find("a", CHAIN)
    pool.settle()
    pool.want("a", ask, 6)
    assert len(pool.hosts["a"].moves) == 6
    pool.leave("a")
    pool.settle()
    stats = pool.hosts["a"].machine.pooling.stats()
    assert stats is not None
    assert stats.dram.held == stats.dram.reserved == 0
    pool.check()


def test_mooncake_2187_above_the_watermark_the_oldest_go_and_puts_succeed() -> None:
    """Mooncake#2187."""
    pool = world(pages=100, watermark=0.5)
    for number in range(200):
        put = pool.put("a", [number])
        pool.settle()
        assert pool.reader("a").stored[put] == 1
    stats = pool.hosts["a"].machine.pooling.stats()
    assert stats is not None
    assert stats.dram.segments.used == 50 * PAGE
    assert stats.dram.evictions == 150


def test_mooncake_2187_values_of_another_length_find_room_too() -> None:
    """Mooncake#2187."""
    pool = world(pages=128)
    for number in range(128):
        pool.put("a", [number])
        pool.settle()
    for number in range(200, 300):
        put = pool.put("a", [number], size=5 * PAGE)
        pool.settle()
        assert pool.reader("a").stored[put] == 1
    pool.check()


def test_mooncake_2187_values_that_are_all_held_are_a_put_that_stores_nothing() -> None:
    """Mooncake#2187: the other end of it, answered all the same."""
    pool = world(pages=4)
    pool.put("a", [1, 2, 3, 4])
    pool.run(100)
    ask = pool.find("a", [1, 2, 3, 4])
    pool.settle()
    pool.want("a", ask, 4)
    put = pool.put("a", [5])
    pool.settle()
    assert pool.reader("a").stored[put] == 0
    assert pool.names("pool.not_stored") == 1
    pool.done("a", ask)
    put = pool.put("a", [5])
    pool.settle()
    assert pool.reader("a").stored[put] == 1


def test_mooncake_1871_a_lost_host_takes_its_share_alone() -> None:
    """Mooncake#1871. There is no leader whose change could lose what all others hold."""
    pool = world("a", "b", "c", pages=64)
    numbers = list(range(60))
    pool.put("a", numbers)
    pool.run(500)
    there = [number for number in numbers if pool.tiers("a", [number])]
    assert there == numbers
    lost = [number for number in numbers if _home(pool, number) == "c"]
    assert 10 < len(lost) < 30
    pool.kill("c")
    pool.members()
    pool.run(500)
    left = [number for number in numbers if pool.tiers("b", [number])]
    assert left == [number for number in numbers if number not in lost]


def _home(pool: PoolWorld, number: int) -> str:
    return ranked(key_of(number), pool.hosts)[0]


# between hosts


def test_a_run_over_several_homes_is_one_answer() -> None:
    pool = world("a", "b", "c")
    pool.put("b", list(range(12)))
    pool.run(500)
    tiers = pool.tiers("a", list(range(12)))
    assert len(tiers) == 12
    assert set(tiers) == {"d", "D"}
    assert pool.read("c", list(range(14))) == contents(list(range(12)))


def test_the_run_ends_at_the_first_value_that_is_missing_anywhere() -> None:
    pool = world("a", "b", "c")
    pool.put("a", [0, 1, 2, 3, 5, 6, 7, 8, 9])
    pool.run(500)
    assert len(pool.tiers("b", list(range(10)))) == 4


def test_a_home_that_does_not_answer_has_nothing_after_a_while() -> None:
    pool = world("a", "b")
    pool.put("a", list(range(12)))
    pool.run(500)
    ask = pool.find("a", list(range(12)))
    pool.mail = type(pool.mail)(mail for mail in pool.mail if mail[1] != "agent/b")
    pool.settle()
    assert ask not in pool.reader("a").found
    pool.run(300)
    first = next(n for n in range(12) if _home(pool, n) == "b")
    assert len(pool.reader("a").found[ask].tiers) == first
    assert pool.names("pool.silent") == 1


def test_a_host_that_joins_is_offered_its_share_and_nothing_is_missed() -> None:
    pool = world("a", "b", pages=256)
    numbers = list(range(80))
    pool.put("a", numbers)
    pool.run(500)
    pool.start("c")
    pool.members()
    pool.run(5000)
    moved = [number for number in numbers if _home(pool, number) == "c"]
    assert len(moved) > 10
    assert [number for number in numbers if pool.tiers("a", [number])] == numbers
    stats = [host.machine.pooling.stats() for host in pool.hosts.values()]
    assert sum(one.values for one in stats if one is not None) == len(numbers), "kept once"
    pool.check()


def test_agents_never_pass_a_question_on() -> None:
    """Two that know other lists of hosts cannot send each other round."""
    pool = world("a", "b")
    strange = next(number for number in range(50) if _home(pool, number) == "b")
    find = PoolFind(ask=9, namespace="n", keys=key_of(strange), reply=Address("agent/b"))
    pool.mail.append((Address("agent/b"), Address("agent/a"), find))
    assert pool.deliver()
    assert [mail[1] for mail in pool.mail] == ["agent/b"]
    assert isinstance(pool.mail[0][2], PoolFound)


# tiers


def test_values_go_to_disk_in_the_background_and_come_back() -> None:
    pool = world(pages=6, disk=200)
    numbers = list(range(30))
    for number in numbers:
        pool.put("a", [number])
        pool.run(50)
    assert pool.tiers("a", [0]) == "s"
    assert pool.tiers("a", [29]) == "d"
    assert pool.read("a", numbers[:5]) == contents(numbers[:5])


def test_a_full_disk_stops_writes_for_a_while_and_nothing_else() -> None:
    pool = world(pages=16, disk=200)
    pool.next_end.extend([MoveEnd.DONE, MoveEnd.FULL])
    pool.put("a", [1])
    pool.settle()
    put = pool.put("a", [2, 3])
    pool.settle()
    assert pool.reader("a").stored[put] == 2
    assert pool.names("pool.disk_full") == 1
    assert not pool.hosts["a"].labels
    pool.wait(31_000)
    pool.put("a", [4])
    pool.settle()
    assert len(pool.hosts["a"].labels) == 3, "those that waited too"


def test_a_number_that_was_wished_for_twice_is_written_once() -> None:
    """Evicted before it was written, its number another value's, and that wished for too."""
    pool = world(pages=2, disk=200)
    pool.next_end.extend([MoveEnd.DONE, MoveEnd.FULL])
    pool.put("a", [1])
    pool.settle()
    for number in range(2, 8):
        pool.put("a", [number])
        pool.settle()
    pool.wait(31_000)
    pool.find("a", [7])  # something has to happen before it looks at its disk again
    pool.settle()
    pool.run(100)
    pool.put("a", [8])
    pool.settle()
    pool.check()
    assert pool.tiers("a", [8]) == "d"
    assert len(pool.hosts["a"].labels) == 3, "6 and 7 with it, each once"


def test_a_disk_that_is_gone_is_given_up() -> None:
    pool = world(pages=8, disk=200)
    for number in range(16):
        pool.put("a", [number])
        pool.run(50)
    assert pool.tiers("a", [0, 1, 2, 3]) == "ssss"
    pool.next_end.extend([MoveEnd.GONE] * 4)
    assert pool.read("a", [0, 1, 2, 3]) == [None] * 4
    assert pool.names("pool.disk_off") == 1
    assert pool.tiers("a", [0]) == ""
    put = pool.put("a", [50])
    pool.settle()
    assert pool.reader("a").stored[put] == 1, "memory goes on"
    pool.check()


def test_a_value_that_rots_in_memory_never_reaches_the_disk() -> None:
    pool = world(pages=8, disk=200)
    pool.next_end.extend([MoveEnd.DONE, MoveEnd.CORRUPT])
    pool.put("a", [1])
    pool.run(100)
    assert pool.tiers("a", [1]) == ""
    assert not pool.hosts["a"].labels


def test_a_reader_that_finds_a_value_broken_is_the_last() -> None:
    pool = world()
    pool.put("a", CHAIN)
    pool.run(100)
    ask = pool.find("a", CHAIN)
    pool.settle()
    pool.want("a", ask, 6)
    pool.done("a", ask, broken=(3,))
    assert pool.tiers("a", CHAIN) == "ddd"
    assert pool.names("pool.corrupt") == 1


# leases


def test_a_held_value_stays_until_its_lease_ends() -> None:
    pool = world(pages=4, lease_s=10.0)
    pool.put("a", [1])
    pool.run(100)
    ask = pool.find("a", [1])
    pool.settle()
    pool.want("a", ask, 1)
    for number in range(10, 30):
        pool.put("a", [number])
        pool.settle()
    value = pool.reader("a").ready[ask][0]
    assert value is not None
    assert pool.content(value) == contents([1])[0]
    pool.run(11_000)
    assert pool.names("pool.lease_expired") == 1
    for number in range(30, 50):
        pool.put("a", [number])
        pool.settle()
    assert pool.tiers("a", [1]) == ""
