"""What a task executor says, to whom, and in which order."""

import pytest
from executor_harness import FRONT, Harness, task
from fake_engine import expected

from tercet.base.errors import InvariantBroken
from tercet.jobs.job import FailureCode, Finish
from tercet.messages.effects import RunStep, Send
from tercet.messages.events import Received, StepDone
from tercet.messages.plan import StepResult
from tercet.messages.wire import ExecutorGone
from tercet.scheduling.config import SchedulingConfig


def _kinds(effects):
    return [type(effect).__name__ for effect in effects if isinstance(effect, Send | RunStep)]


def test_a_start_is_told_before_the_step_that_holds_it():
    harness = Harness()
    effects = harness.submit(task(1, [1, 2, 3]))
    assert _kinds(effects)[:2] == ["Send", "RunStep"]
    (update,) = next(e for e in effects if isinstance(e, Send)).message.updates
    assert (update.task, update.started, update.tokens) == (1, True, ())


def test_a_task_tells_its_tokens_and_its_end_once():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=5))
    harness.drain()
    harness.verify(1)
    assert [update.started for update in harness.updates[1]].count(True) == 1
    last = harness.updates[1][-1]
    assert (last.finish, last.stop_token, len(last.tokens)) == (Finish.LENGTH, None, 1)


def test_a_stop_token_is_named_and_is_the_last():
    given = task(1, [1, 2, 3], new=100)
    end = expected(given, context_max=512)[6]
    harness = Harness(end_id=end)
    harness.submit(given)
    harness.drain()
    last = harness.updates[1][-1]
    assert (last.finish, last.stop_token) == (Finish.STOP, end)
    assert harness.tokens[1][-1] == end


def test_updates_of_a_step_are_one_message_for_each_front():
    harness = Harness()
    for number in (1, 2, 3, 4):
        harness.submit(task(number, [number], new=20), front=f"front/{number % 2}")
    harness.step()
    harness.step()
    sends = [e for e in harness.step() if isinstance(e, Send)]
    assert sorted(send.to for send in sends) == ["front/0", "front/1"]
    assert [len(send.message.updates) for send in sends] == [2, 2]
    load = sends[0].message.load
    assert (load.running, load.waiting, load.blocks_free, load.blocks_total) == (4, 0, 60, 64)


def test_a_resumed_task_goes_on_from_what_the_client_has():
    harness = Harness()
    whole = task(1, [1, 2, 3], new=30)
    tokens = expected(whole, context_max=512)
    harness.submit(task(2, [1, 2, 3], new=30, generated=tokens[:11]))
    harness.drain()
    assert harness.tokens[2] == tokens[11:]


def test_a_resumed_task_that_was_complete_ends_at_once():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=2, generated=[8, 9]))
    (update,) = harness.updates[1]
    assert (update.started, update.finish, update.tokens) == (True, Finish.LENGTH, ())


@pytest.mark.parametrize(
    ("prompt", "new", "words"),
    [([1] * 100, 1000, "may grow to 512 tokens, which need 32 KV blocks; this executor has 20"),
     ([1] * 512, 1, "512 tokens leave no room in a context of 512"),
     ([], 4, "empty prompt")],
)  # fmt: skip
def test_what_can_never_fit_is_refused_with_the_numbers(prompt, new, words):
    harness = Harness(num_blocks=20, context_max=512)
    harness.submit(task(1, prompt, new=new))
    end = harness.ends[1]
    assert (end.finish, end.failure.code) == (Finish.FAILED, FailureCode.NO_ROOM)
    assert words in end.failure.detail
    assert not harness.plans


def test_a_full_queue_answers_at_once():
    harness = Harness(scheduling=SchedulingConfig(max_slots=1, max_waiting=2))
    for number in range(1, 6):
        harness.submit(task(number, [number]))
    for number in (4, 5):
        failure = harness.ends[number].failure
        assert failure.code is FailureCode.OVERLOADED
        assert failure.detail == "2 tasks wait; 2 may"
    harness.drain()
    for number in (1, 2, 3):
        harness.verify(number)


def test_the_same_words_twice_are_heard_once():
    harness = Harness()
    given = task(1, [1, 2], new=9)
    harness.submit(given)
    harness.submit(given)
    harness.step()
    harness.submit(given)
    harness.drain()
    harness.verify(1)
    assert harness.started == [1]


def test_a_task_is_begun_anew_where_words_may_be_lost():
    """The connection broke between: what was said before may not have arrived."""
    harness = Harness()
    given = task(1, [1, 2], new=9)
    harness.submit(given)
    for _ in range(3):
        harness.step()
    told = harness.tokens[1][:]
    harness.gone()
    harness.joined()
    harness.submit(task(1, [1, 2], new=9, generated=told[:1]))
    harness.drain()
    assert harness.started == [1, 1]
    assert harness.tokens[1] == expected(given, context_max=512)[1:]


@pytest.mark.parametrize("steps", range(6))
def test_a_cancel_frees_within_two_steps(steps):
    """In the queue, in prefill, in decode: llama.cpp#24496, #13262, #15232."""
    harness = Harness(scheduling=SchedulingConfig(max_rows=128))
    harness.submit(task(1, [1] * 300, new=100))
    for _ in range(steps):
        harness.step()
    harness.cancel(1)
    told = len(harness.updates[1])
    for _ in range(2):
        if harness.plans:
            harness.step()
    assert not harness.plans
    assert harness.machine.cache.stats().held == 0
    assert len(harness.updates[1]) == told, "nobody listens any more"


def test_what_overran_is_never_a_hit():
    """KV of the step after a cancel is not indexed: only what was known to be computed."""
    harness = Harness()
    harness.submit(task(1, [1] * 14, new=100))
    for _ in range(2):
        harness.step()
    assert harness.machine.scheduler.runs[1].computed == 15
    harness.cancel(1)
    harness.drain()
    assert harness.machine.cache.stats().cached == 0


def test_a_cancel_in_the_queue_costs_nothing():
    harness = Harness(scheduling=SchedulingConfig(max_slots=1))
    for number in (1, 2, 3):
        harness.submit(task(number, [number]))
    harness.cancel(2)
    harness.cancel(2)
    harness.cancel(99)
    harness.drain()
    assert harness.started == [1, 3]


def test_a_cancelled_task_may_come_again_at_once():
    harness = Harness()
    given = task(1, [1] * 20, new=9)
    harness.submit(given)
    harness.step()
    harness.cancel(1)
    harness.submit(given)
    harness.drain()
    harness.verify(1)


def test_messages_for_others_are_passed_by():
    harness = Harness()
    message = ExecutorGone(executor=2, reason="")
    assert harness.on(Received(sender="cluster", epoch=1, message=message)) == []


def test_a_result_out_of_order_stops_the_machine():
    harness = Harness()
    with pytest.raises(InvariantBroken, match="none is under way"):
        harness.machine.on(StepDone(result=StepResult(step=1)), 0)
    harness.submit(task(1, [1], new=9))
    with pytest.raises(InvariantBroken, match="step 2 is done, but step 1"):
        harness.machine.on(StepDone(result=StepResult(step=2)), 0)


def test_a_result_of_another_size_stops_the_machine():
    harness = Harness()
    harness.submit(task(1, [1], new=9))
    with pytest.raises(InvariantBroken, match="1 slots planned, results for 0"):
        harness.machine.on(StepDone(result=StepResult(step=1)), 0)


def test_nothing_grows_with_the_number_of_tasks_served():
    """vllm#50150, #52089: lists that are never drained."""
    harness = Harness(num_blocks=32, context_max=256)

    def sizes():
        machine = harness.machine
        scheduler = machine.scheduler
        return (
            len(scheduler.runs),
            len(scheduler.running),
            len(scheduler.leaving),
            len(scheduler.queue),
            len(scheduler.flights),
            len(scheduler.preempted),
            len(scheduler._closing),
            len(scheduler._free_slots),
            len(machine.fronts),
            len(machine._wakes),
            len(machine._reconciler.finished),
            machine.cache.stats().held,
        )

    seen = []
    for round_ in range(30):
        for number in range(1, 9):
            leader = 10 * round_ + 1 if number > 4 else None
            harness.submit(task(10 * round_ + number, [round_, number], new=9), leader=leader)
        harness.cancel(10 * round_ + 3)
        harness.cancel(10 * round_ + 6, front=FRONT)
        harness.drain()
        seen.append(sizes())
    # Slots that are to be closed go with the next plan: their number is bounded, not growing.
    assert len({(*s[:6], *s[7:]) for s in seen}) == 1
    assert max(s[6] for s in seen) <= 8


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("prompt", [[1, 2, 3], [1] * 300])
def test_the_room_of_a_cancelled_task_is_told_within_two_steps(steps, prompt):
    """dynamo#5095, vllm-ascend#12383: a count of blocks that only grows, since nobody tells that
    they are free again; here the last word of an idle executor says that all of them are.
    """
    harness = Harness()
    harness.submit(task(1, prompt, new=100))
    for _ in range(steps):
        harness.step()
    sends = harness.cancel(1)
    for _ in range(len(harness.plans)):
        sends = harness.step()
    (last,) = [effect for effect in sends if isinstance(effect, Send)]
    assert (last.to, last.message.updates) == (FRONT, ())
    load = last.message.load
    assert (load.running, load.waiting, load.blocks_free) == (0, 0, load.blocks_total)
    assert not harness.plans


def test_the_room_of_a_task_that_overran_is_told():
    given = task(1, [1, 2, 3], new=100)
    harness = Harness(end_id=expected(given, context_max=512)[6])
    harness.submit(given)
    harness.drain()
    load = harness.sends[-1].message.load
    assert (load.running, load.waiting, load.blocks_free) == (0, 0, load.blocks_total)
