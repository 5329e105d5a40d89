"""Where a prompt was before, unless that costs more than it saves."""

from dataclasses import dataclass

from tercet.base.ids import ExecutorId
from tercet.cache.identity import keys_of, root_key
from tercet.routing.policies.prefix_affinity import PrefixAffinity

ROOT = root_key("", "m")
LONG = keys_of(range(320), ROOT)
FORK = keys_of([*range(160), *range(1000, 1160)], ROOT)
OTHER = keys_of(range(5000, 5320), ROOT)


@dataclass(frozen=True)
class Seen:
    executor: ExecutorId
    num_tasks: int = 0
    num_tokens: int = 0


def seen(*loads: tuple[int, int]) -> list[Seen]:
    return [Seen(ExecutorId(e), num_tokens=tokens) for e, tokens in loads]


def house() -> PrefixAffinity:
    policy = PrefixAffinity()
    policy.placed(ExecutorId(1), LONG, num_blocks=100)
    return policy


def test_nobody_with_room_means_nobody() -> None:
    assert house().choose([], LONG) is None


def test_the_longest_prefix_wins_among_equals() -> None:
    assert house().choose(seen((0, 0), (1, 0)), LONG) == 1
    assert house().choose(seen((0, 0), (1, 0)), FORK) == 1
    assert house().choose(seen((0, 0), (1, 0)), OTHER) == 0


def test_it_counts_for_no_more_than_it_saves() -> None:
    assert house().choose(seen((0, 0), (1, 320)), LONG) == 1, "as long a wait as it saves"
    assert house().choose(seen((0, 0), (1, 321)), LONG) == 0
    assert house().choose(seen((0, 0), (1, 161)), FORK) == 0


def test_it_remembers_no_more_than_an_executor_has_and_ends_of_prefixes_go_first() -> None:
    policy = house()
    policy.placed(ExecutorId(1), OTHER, num_blocks=30)
    assert policy.matched(ExecutorId(1), OTHER) == 20
    assert policy.matched(ExecutorId(1), LONG) == 10
    policy.placed(ExecutorId(1), LONG, num_blocks=30)
    assert policy.matched(ExecutorId(1), OTHER) == 10


def test_what_is_gone_has_nothing() -> None:
    policy = house()
    policy.gone(ExecutorId(1))
    assert policy.matched(ExecutorId(1), LONG) == 0
