import pytest
from executor_harness import task

from tercet.base.errors import InvariantBroken
from tercet.messages.wire import SubmitTask
from tercet.scheduling.queue import WaitingQueue
from tercet.scheduling.run import TaskRun
from tercet.scheduling.states import RunState


def _run(number, *, leader=None):
    message = SubmitTask(task=task(number, [1]), reply="front/0", leader=leader)
    return TaskRun(message, order=number, now=0, context_max=100)


def _queue(*runs):
    queue = WaitingQueue()
    for run in runs:
        queue.add(run)
    queue.check()
    return queue


def test_a_task_that_comes_back_takes_its_old_place():
    queue = _queue(_run(1), _run(3), _run(5))
    queue.add(_run(2))
    assert [run.id for run in queue.waiting] == [1, 2, 3, 5]


def test_whoever_stands_before_is_passed():
    queue = _queue(_run(1), _run(2), _run(3))
    assert queue.take(2).id == 3
    assert [run.passed for run in queue.waiting] == [1, 1]
    queue.take(0)
    assert [run.passed for run in queue.waiting] == [1]


def test_siblings_join_at_their_own_place():
    queue = _queue(_run(1), _run(2, leader=1), _run(3, leader=1), _run(4))
    assert [run.id for run in queue.waiting] == [1, 4]
    assert len(queue) == 4
    queue.take(0)
    queue.free_followers(1)
    queue.check()
    assert [run.id for run in queue.waiting] == [2, 3, 4]
    assert queue.leaders() == []


def test_a_task_can_leave_from_anywhere():
    runs = [_run(1), _run(2, leader=1), _run(3), _run(4, leader=1)]
    queue = _queue(*runs)
    for run in (runs[1], runs[2], runs[3], runs[0]):
        queue.remove(run)
        queue.check()
    assert len(queue) == 0
    assert queue.leaders() == [], "no list without a task stays behind"
    with pytest.raises(InvariantBroken, match="not in a queue"):
        queue.remove(runs[0])


def test_a_lost_follower_is_caught():
    queue = _queue(_run(1), _run(2, leader=1))
    queue._following.clear()
    with pytest.raises(InvariantBroken, match="follow"):
        queue.check()


def test_only_waiting_tasks_stand_in_the_queue():
    run = _run(1)
    run.become(RunState.RUNNING)
    with pytest.raises(InvariantBroken, match="running"):
        _queue(run)
