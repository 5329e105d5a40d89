"""Results as an engine gives them: values that go along, and counts that were not planned."""

from array import array

import pytest
from executor_harness import Harness, task

from tercet.base.errors import InvariantBroken
from tercet.jobs.job import Finish, TokenLogprobs
from tercet.messages.events import StepDone
from tercet.messages.plan import GUESS_RIGHT, StepCost, StepResult

CHEAP_ROWS = StepCost(base_ns=9e7, per_row_ns=1e6, per_logit_ns=0.0, per_pair_ns=0.0)


def _i4(*values):
    return array("i", values).tobytes()


def _done(harness, **result):
    plan, _ = harness.plans.pop(0)
    return harness.on(StepDone(result=StepResult(step=plan.step, **result)))


def test_logprobs_go_along_with_their_tokens():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=9, logprobs=0))
    entry = TokenLogprobs(5, -0.5, 1)
    result = {"tokens": _i4(5), "counts": _i4(1), "computed": _i4(3), "finishes": b"\0"}
    _done(harness, logprobs=((0, (entry,)),), **result)
    update = harness.updates[1][-1]
    assert (update.tokens, update.logprobs, update.cached_tokens) == ((5,), (entry,), 0)


def test_prompt_logprobs_of_all_chunks_go_with_the_first_token():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=9, prompt_logprobs=0))
    entries = (None, TokenLogprobs(2, -1.0, 1), TokenLogprobs(3, -2.0, 4))
    harness.machine.scheduler.runs[1].prompt_logprobs.extend(entries[:1])
    result = {"tokens": _i4(5), "counts": _i4(1), "computed": _i4(3), "finishes": b"\0"}
    _done(harness, prompt_logprobs=((0, entries[1:]),), **result)
    assert harness.updates[1][-1].prompt_logprobs == entries
    result = {"tokens": _i4(6), "counts": _i4(1), "computed": _i4(4), "finishes": b"\0"}
    _done(harness, **result)
    assert harness.updates[1][-1].prompt_logprobs is None, "once"


def test_a_slot_that_ended_early_is_believed():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=9))
    _done(harness, tokens=_i4(5), counts=_i4(1), computed=_i4(3), finishes=b"\1")
    assert (harness.ends[1].finish, harness.ends[1].stop_token) == (Finish.STOP, 5)
    assert harness.machine.cache.stats().held == 1, "the next step still names the slot"
    _done(harness, counts=_i4(0), computed=_i4(3), finishes=b"\0")
    assert harness.machine.cache.stats().held == 0


def test_a_task_ends_where_its_length_does_even_if_the_slot_says_nothing():
    harness = Harness()
    harness.submit(task(1, [1, 2, 3], new=1))
    _done(harness, tokens=_i4(5), counts=_i4(1), computed=_i4(3), finishes=b"\0")
    assert harness.ends[1].finish is Finish.LENGTH
    assert not harness.plans


def test_right_guesses_come_as_further_tokens():
    harness = Harness(cost=CHEAP_ROWS)
    harness.submit(task(1, [1, 2, 3], new=30, logprobs=0))
    _done(harness, tokens=_i4(5), counts=_i4(1), computed=_i4(3), finishes=b"\0")
    known = 3
    while harness.plans[0][0].guesses == b"\1":
        known += 1
        told = {"guessed": bytes([GUESS_RIGHT]), "finishes": b"\0"}
        _done(harness, tokens=_i4(5), counts=_i4(1), computed=_i4(known), **told)
        assert known < 9, "looks that are right switch it on"
    assert known == 4, "nothing is verified before a look was right, and one such look will do"
    guesses = harness.plans[0][0].guesses[0]
    assert guesses > 2
    entries = tuple(TokenLogprobs(token, -0.5, 1) for token in (7, 8, 9))
    result = {"tokens": _i4(7, 8, 9), "counts": _i4(3), "computed": _i4(known + 3)}
    told = {"drafted": bytes([guesses - 1]), "guessed": bytes([GUESS_RIGHT]), "finishes": b"\0"}
    _done(harness, logprobs=((0, entries),), **result, **told)
    update = harness.updates[1][-1]
    assert (update.tokens, update.logprobs) == ((7, 8, 9), entries)
    fact = next(fact for fact in reversed(harness.facts) if fact.name == "step.done")
    values = dict(fact.values)
    assert (values["drafts"], values["drafted"], values["accepted"]) == (1, guesses - 1, 2)
    assert (values["tokens"], values["rows"]) == (3, guesses)


def test_more_tokens_than_guesses_stop_the_machine():
    harness = Harness(cost=CHEAP_ROWS)
    harness.submit(task(1, [1, 2, 3], new=30))
    _done(harness, tokens=_i4(5), counts=_i4(1), computed=_i4(3), finishes=b"\0")
    with pytest.raises(InvariantBroken, match="guesses 1; the result says 5 computed and 2 gained"):
        _done(harness, tokens=_i4(5, 6), counts=_i4(2), computed=_i4(5), finishes=b"\0")


@pytest.mark.parametrize(("gained", "computed"), [(0, 20), (1, 19), (0, 12)])
def test_a_result_that_deviates_from_its_plan_stops_the_machine(gained, computed):
    harness = Harness()
    harness.submit(task(1, [1] * 20, new=9))
    with pytest.raises(InvariantBroken, match=r"task 0\.0/1 had 0 tokens computed, 20 rows"):
        _done(
            harness,
            counts=_i4(gained),
            tokens=_i4(*[5] * gained),
            computed=_i4(computed),
            finishes=b"\0",
        )
