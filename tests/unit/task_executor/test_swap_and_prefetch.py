"""What an executor does in the background: values that were not stored go before their blocks do,
and tasks that found no room for theirs get them while they wait.
"""

from array import array

from executor_harness import task
from fake_pool import AGENT
from peer_world import World

from tercet.messages.kv import PoolFind
from tercet.messages.wire import Role
from tercet.scheduling.config import SchedulingConfig

ONE, OTHER = "executor/1", "executor/2"
VALUE_BLOCKS = 2


def prompt(letter: int, tokens: int = 65) -> list[int]:
    return [letter] * tokens


def world(**options) -> World:
    return World({1: Role.COLOCATED}, pool=True, **options)


def run(house: World, *letters: int, first: int = 1, tokens: int = 65) -> None:
    for number, letter in enumerate(letters, first):
        house.submit(task(number, prompt(letter, tokens), new=2), ONE)
    house.settle()
    for number in range(first, first + len(letters)):
        house.verify(number)


def stored(house: World, letter: int, tokens: int = 65) -> int:
    cache = house.peers[ONE].machine.cache
    keys = cache.keys_for("", array("i", prompt(letter, tokens)), 32)
    return sum(("", key) in house.pool.values for key in keys)


def test_prompts_beyond_the_stores_at_once_are_stored_before_they_are_evicted() -> None:
    house = world(max_stores=1, num_blocks=40)
    run(house, 11, 12, 13)
    assert 0 in [stored(house, letter) for letter in (11, 12, 13)]
    for number, letter in enumerate(range(14, 23), 4):
        run(house, letter, first=number)
    assert [stored(house, letter) for letter in (11, 12, 13)] == [2, 2, 2]
    house.quiet()


def test_prompts_computed_while_the_agent_was_away_are_stored_before_they_are_evicted() -> None:
    house = world(num_blocks=40)
    house.cut(AGENT, ONE)
    run(house, 11, 12)
    house.link(AGENT, ONE)
    assert not house.pool.values
    for number, letter in enumerate(range(13, 23), 3):
        run(house, letter, first=number)
    assert [stored(house, letter) for letter in (11, 12)] == [2, 2]
    house.quiet()


def test_what_a_pool_refuses_is_offered_again_once_and_no_more() -> None:
    house = world(num_blocks=40)
    house.pool.refuses = True
    for number, letter in enumerate(range(11, 31), 1):
        run(house, letter, first=number)
    offered = sum(dict(fact.values)["offered"] for fact in house.facts_of("pool.offered"))
    assert 20 * VALUE_BLOCKS < offered <= 2 * 20 * VALUE_BLOCKS
    house.pass_time(10**9)
    house.settle()
    again = sum(dict(fact.values)["offered"] for fact in house.facts_of("pool.offered"))
    assert again == offered
    house.quiet()


def test_what_was_generated_is_not_swapped_out() -> None:
    house = world(num_blocks=24)
    house.submit(task(1, prompt(11, 40), new=80), ONE)
    house.settle()
    for number, letter in enumerate((13, 14, 15, 16, 17), 2):
        run(house, letter, first=number)
    assert len(house.pool.values) == 1 + 5 * VALUE_BLOCKS


def test_nothing_is_looked_at_while_nothing_is_evicted() -> None:
    house = world(num_blocks=200)
    house.cut(AGENT, ONE)
    run(house, 11, 12)
    house.link(AGENT, ONE)
    run(house, 13, 14, first=3)
    assert [stored(house, letter) for letter in (11, 12)] == [0, 0]
    house.quiet()


def test_a_task_that_found_no_room_gets_its_values_while_it_waits() -> None:
    house = World(
        {1: Role.COLOCATED, 2: Role.COLOCATED},
        pool=True,
        num_blocks={1: 60, 2: 16},
        populate="always",
        scheduling=SchedulingConfig(max_slots=1),
    )
    run(house, 11, tokens=97)
    house.submit(task(2, prompt(21, 170), new=20), OTHER)  # 11 or 12 of 16 blocks
    house.happen()
    house.submit(task(3, prompt(22, 20), new=100), OTHER)
    house.submit(task(4, prompt(11, 97), new=2), OTHER)
    house.happen()
    populator = house.peers[OTHER].machine.partners.populator
    assert list(populator.prefetcher.short) == [4]
    assert _finds_of(house, house.settle) == 1, "asked again, once"
    assert not populator.prefetcher.short
    for number in (2, 3, 4):
        house.verify(number)
    assert house.cached[4] == 96
    house.quiet()


def test_a_task_far_back_in_line_finds_what_was_stored_after_it_came() -> None:
    """A conversation's next turn comes before the last one was answered elsewhere."""
    house = World(
        {1: Role.COLOCATED, 2: Role.COLOCATED},
        pool=True,
        populate="always",
        scheduling=SchedulingConfig(max_slots=1),
    )
    house.submit(task(1, prompt(21, 20), new=300), OTHER)
    house.submit(task(2, prompt(11, 97), new=2), OTHER)
    house.submit(task(3, prompt(11, 97), new=2), ONE)
    while stored(house, 11, 97) < 3:
        house.happen()
    assert 2 not in house.tokens
    house.pass_time(2 * 10**9)
    house.settle()
    house.verify(2)
    assert house.cached[2] == 96
    house.quiet()


def test_the_line_is_looked_at_once_a_second() -> None:
    house = World({1: Role.COLOCATED, 2: Role.COLOCATED}, pool=True)
    prefetcher = house.peers[OTHER].machine.partners.populator.prefetcher
    for number in range(1, 21):
        house.submit(task(number, prompt(number), new=2), OTHER)
    first = [run.id for run in prefetcher.due(10**9, spare=1)]
    waiting = house.peers[OTHER].machine.scheduler.queue.waiting
    assert first == [run.id for run in waiting[:4]]
    assert list(prefetcher.due(2 * 10**9 - 1, spare=1)) == []
    assert [run.id for run in prefetcher.due(2 * 10**9, spare=1)] == first


def test_a_value_that_does_not_come_is_waited_for_no_longer_than_silence_lasts() -> None:
    """Its host is frozen: the copy ends much later. Meanwhile the task computes."""
    house = World({1: Role.COLOCATED, 2: Role.COLOCATED}, pool=True, populate="always")
    run(house, 11, tokens=97)
    house.submit(task(2, prompt(11, 97), new=2), OTHER)
    other = house.peers[OTHER]
    while not other.moves:
        house.deliver()
    frozen, other.moves = other.moves, []
    house.pass_time(6 * 10**9)
    house.settle()
    house.verify(2)
    assert other.machine.partners.rtc.num_populates == 1, "what is written to stays reserved"
    other.moves = frozen
    house.quiet()
    assert other.machine.partners.rtc.num_populates == 0


def _finds_of(house: World, act) -> int:
    found = []
    heard = house.pool.heard

    def listen(sender, message, engine):
        if isinstance(message, PoolFind) and sender == OTHER:
            found.append(message)
        return heard(sender, message, engine)

    house.pool.heard = listen
    act()
    house.pool.heard = heard
    return len(found)
