"""What a front tells the supervisor, look after look."""

from tercet.runtime.control import Failed, State
from tercet.runtime.telling import Telling

WHY = "5 times in a row an executor ended before it was ready"


def test_nothing_is_said_twice() -> None:
    """A front looks 50 times a second: a failure that lasts must not flood the log."""
    telling = Telling()
    assert telling.news(ready=False, failed="") == []
    assert telling.news(ready=False, failed=WHY) == [Failed(sentence=WHY)]
    assert [telling.news(ready=False, failed=WHY) for _ in range(3)] == [[], [], []]
    assert telling.news(ready=False, failed="another") == [Failed(sentence="another")]


def test_a_failure_that_came_back_is_said_again() -> None:
    telling = Telling()
    assert telling.news(ready=False, failed=WHY) == [Failed(sentence=WHY)]
    assert telling.news(ready=True, failed="") == [State(ready=True)]
    assert telling.news(ready=True, failed=WHY) == []
    assert telling.news(ready=False, failed=WHY) == [State(ready=False), Failed(sentence=WHY)]
