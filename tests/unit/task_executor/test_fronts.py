"""Tasks of a front end with it: by change of epoch, or after a time without connection."""

import pytest
from executor_harness import Harness, task

from tercet.base.errors import InvariantBroken
from tercet.messages.events import PeerGone, PeerJoined
from tercet.task_executor.config import TaskExecutorConfig

GRACE = 10**9


def _harness():
    harness = Harness(config=TaskExecutorConfig(front_grace_ns=GRACE))
    harness.submit(task(1, [1] * 20, new=300), front="front/0")
    harness.submit(task(2, [2] * 20, new=30), front="front/1")
    harness.step()
    return harness


def test_a_new_self_of_a_front_ends_what_the_former_wanted():
    harness = _harness()
    harness.joined("front/0", epoch=2)
    harness.drain()
    assert 1 not in harness.ends
    harness.verify(2)


def test_a_submit_of_a_new_self_tells_as_much_as_its_join():
    harness = _harness()
    harness.submit(task(3, [3]), front="front/0", epoch=2)
    assert 1 not in harness.machine.scheduler.runs
    harness.drain()
    harness.verify(3)


def test_words_of_a_former_self_are_not_heard():
    harness = _harness()
    harness.joined("front/0", epoch=5)
    harness.submit(task(3, [3]), front="front/0", epoch=1)
    harness.joined("front/0", epoch=1)
    harness.gone("front/0", epoch=1)
    assert 3 not in harness.machine.scheduler.runs
    assert not harness.wakes
    harness.drain()


def test_a_front_that_stays_away_loses_its_tasks():
    harness = _harness()
    harness.gone("front/0")
    assert harness.wakes == {"front:front/0": harness.now + GRACE}
    harness.wake("front:front/0")
    assert 1 not in harness.machine.scheduler.runs
    assert len(harness.machine.fronts) == 1
    harness.drain()
    harness.verify(2)


def test_a_front_that_comes_back_in_time_keeps_them():
    harness = _harness()
    harness.gone("front/0")
    harness.now += GRACE // 2
    harness.joined("front/0")
    harness.wake("front:front/0")
    harness.drain()
    harness.verify(1)


def test_the_grace_begins_anew_with_every_absence():
    harness = _harness()
    harness.gone("front/0")
    first = harness.wakes["front:front/0"]
    harness.now += GRACE // 2
    harness.joined("front/0")
    harness.gone("front/0")
    harness.wakes["front:front/0"] = first  # the driver was late to replace it
    harness.wake("front:front/0")
    assert 1 in harness.machine.scheduler.runs
    harness.wake("front:front/0")
    assert 1 not in harness.machine.scheduler.runs
    harness.drain()


def test_peers_without_tasks_are_not_remembered():
    harness = Harness()
    for peer in ("agent/local", "cluster", "front/7"):
        assert harness.on(PeerJoined(peer=peer, epoch=1)) == []
        assert harness.on(PeerGone(peer=peer, epoch=1)) == []
    assert len(harness.machine.fronts) == 0


def test_a_forgotten_wake_is_caught():
    harness = _harness()
    harness.gone("front/0")
    harness.wakes.clear()  # the driver drops it
    harness.now += 10 * GRACE
    for _ in range(99):
        harness.step()
    with pytest.raises(InvariantBroken, match="wake is overdue"):
        harness.drain()
