from dataclasses import dataclass

from tercet.base.ids import ExecutorId
from tercet.routing.policies.least_load import TASK_TOKENS, least_load


@dataclass(frozen=True)
class Seen:
    executor: ExecutorId
    num_tasks: int = 0
    num_tokens: int = 0


def choose(*seen: tuple[int, int, int]) -> int | None:
    return least_load(Seen(ExecutorId(e), tasks, tokens) for e, tasks, tokens in seen)


def test_nobody_with_room_means_nobody() -> None:
    assert choose() is None


def test_fewer_tasks_win() -> None:
    assert choose((0, 3, 0), (1, 2, 0), (2, 4, 0)) == 1


def test_a_long_prompt_weighs_more_than_some_decodes() -> None:
    assert choose((0, 1, 8000), (1, 3, 30)) == 1
    assert choose((0, 1, 0), (1, 0, TASK_TOKENS - 1)) == 1


def test_among_equals_the_lowest_id_in_whatever_order() -> None:
    assert choose((7, 1, 5), (3, 1, 5), (9, 1, 5)) == 3
