import os
from collections.abc import Iterator

import pytest

from tercet.base.ids import ExecutorId
from tercet.runtime.control import Held, Hold
from tercet.runtime.holdings import Holdings


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """Descriptors to be held; whatever of them is left open is closed."""
    made = [end for _ in range(3) for end in os.pipe()]
    yield made
    for end in made:
        if is_open(end):
            os.close(end)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def hold(number: int, *parts: str, pid: int = 0) -> Hold:
    return Hold(executor=ExecutorId(number), pid=pid, parts=parts)


def test_a_new_agent_is_told_all_that_is_held(ends: list[int]) -> None:
    holdings = Holdings()
    holdings.hold(hold(4, "process", "progress", pid=77), ends[:2])
    holdings.hold(hold(4, "arena"), ends[2:3])
    assert holdings.notes() == [
        (
            Held(executor=ExecutorId(4), pid=77, parts=("process", "progress", "arena")),
            tuple(ends[:3]),
        )
    ]
    holdings.close()
    assert not any(map(is_open, ends[:3]))


def test_a_part_that_comes_again_replaces_the_former(ends: list[int]) -> None:
    holdings = Holdings()
    holdings.hold(hold(1, "progress"), ends[:1])
    holdings.hold(hold(1, "progress"), ends[1:2])
    assert [is_open(end) for end in ends[:2]] == [False, True]
    holdings.release(ExecutorId(1))
    assert not is_open(ends[1])
    assert holdings.notes() == []


def test_ids_are_never_used_twice(ends: list[int]) -> None:
    holdings = Holdings()
    holdings.hold(hold(5, "progress"), ends[:1])
    holdings.release(ExecutorId(5))
    holdings.release(ExecutorId(9))
    assert holdings.next_executor == 6
