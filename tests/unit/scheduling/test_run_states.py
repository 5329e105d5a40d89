import pytest
from executor_harness import task

from tercet.base.errors import InvariantBroken
from tercet.messages.wire import SubmitTask
from tercet.scheduling.run import TaskRun
from tercet.scheduling.states import NEXT, RunState, step_to


def test_what_the_table_lacks_cannot_happen():
    for old in RunState:
        for new in RunState:
            if new in NEXT[old]:
                assert step_to(old, new, "task") is new
            else:
                with pytest.raises(InvariantBroken, match=f"{old.value}: it cannot"):
                    step_to(old, new, "task")


def test_every_state_can_end_and_the_end_is_final():
    assert all(RunState.ENDED in NEXT[s] for s in RunState if s is not RunState.ENDED)
    assert NEXT[RunState.ENDED] == ()


def test_a_slot_gets_all_tokens_that_are_known():
    message = SubmitTask(task=task(1, [1, 2], new=9, generated=[3]), reply="front/0")
    run = TaskRun(message, order=1, now=0, context_max=100)
    assert run.as_task() is message.task
    assert (run.known_given, run.num_prompt, run.known_max, run.gained) == (3, 2, 11, False)
    run.tokens.append(4)
    assert run.as_task().generated == (3, 4)
    assert run.gained


def test_the_context_bounds_a_task():
    message = SubmitTask(task=task(1, [1] * 8, new=100), reply="front/0")
    assert TaskRun(message, order=1, now=0, context_max=20).known_max == 20
