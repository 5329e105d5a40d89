"""When guesses are verified, and how many: by how often they are right and by what rows cost."""

from types import SimpleNamespace

import pytest
from executor_harness import task

from tercet.cache.blocks import BlockPool
from tercet.cache.cache import Cache
from tercet.messages.plan import GUESS_RIGHT, GUESS_WRONG, StepCost, StepPlan, StepResult
from tercet.messages.wire import SubmitTask
from tercet.scheduling.acceptance import Acceptance
from tercet.scheduling.budget import Budget
from tercet.scheduling.run import TaskRun
from tercet.scheduling.speculation import Speculation, StepTimes

COST = StepCost(base_ns=9e7, per_row_ns=1e6, per_logit_ns=0.0, per_pair_ns=0.0)
"""A row more is a hundredth of a step."""


class Decoding:
    """Tasks that decode, with room in their tables, and a speculation that plans for them."""

    def __init__(self, count=1, *, cost=COST, draft_max=8, num_blocks=512, new=400, known=100):
        self.cost = cost
        self.cache = Cache(pool=BlockPool(num_blocks), fingerprint="f")
        self.speculation = Speculation(draft_max=draft_max)
        self.runs = []
        for number in range(1, count + 1):
            submit = SubmitTask(task=task(number, [1] * known, new=new), reply="front/0")
            run = TaskRun(submit, order=number, now=0, context_max=4096)
            run.holding = self.cache.hold("", run.tokens)
            blocks = self.cache.extend(run.holding, -(-known // 16))
            run.extended(len(blocks))
            self.runs.append(run)
        self.grown = {}

    def guesses(self, *, max_rows=4096, step_ns_max=10**12):
        budget = Budget(self.cost, step_ns_max=step_ns_max, max_rows=max_rows)
        budget.take_decodes(len(self.runs), pairs=0)
        self.grown = {}
        return list(
            self.speculation.plan(
                self.runs, cost=self.cost, budget=budget, cache=self.cache, grown=self.grown
            )
        )

    def look(self, outcomes, *, at=0):
        for outcome in outcomes:
            guessed = GUESS_RIGHT if outcome else GUESS_WRONG
            self.runs[at].acceptance.learn(drafted=0, accepted=0, guessed=guessed)

    def took(self, rows, ns):
        planned = SimpleNamespace(runs=self.runs, num_decodes=len(self.runs), pairs=0)
        counts = b"\1\0\0\0" * len(self.runs)
        drafted = bytes([rows - len(self.runs)]) if rows > len(self.runs) else b""
        result = StepResult(step=1, counts=counts, drafted=drafted, duration_ns=ns)
        self.speculation.learn(planned, result, self.cost)


def test_a_task_begins_by_looking_only():
    decoding = Decoding(cost=StepCost(base_ns=4e6, per_row_ns=1e6, per_logit_ns=0, per_pair_ns=0))
    assert decoding.guesses() == [1]
    decoding.look([False] * 9)
    assert decoding.guesses() == [1], "looking costs nothing: it goes on"


def test_right_looks_switch_it_on_and_wrong_ones_off():
    decoding = Decoding()
    depths = []
    for _ in range(6):
        decoding.look([True])
        depths.append(decoding.guesses()[0])
    assert depths == sorted(depths)
    assert depths[-1] == 1 + 8
    for _ in range(40):
        decoding.look([False])
        depths.append(decoding.guesses()[0])
    assert depths[6:] == sorted(depths[6:], reverse=True)
    assert depths[-1] == 1


def test_the_dearer_a_row_the_fewer_guesses():
    depths = []
    for row in (1e6, 2e7, 4e7, 6e7, 8e7, 2e8):
        cost = StepCost(base_ns=9e7, per_row_ns=row, per_logit_ns=0.0, per_pair_ns=0.0)
        decoding = Decoding(cost=cost)
        decoding.look([True, True, True, False, True, True, True])
        depths.append((decoding.guesses() or [0])[0])
    assert depths[0] == 9
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] in (0, 1)


def test_in_a_crowd_a_row_is_worth_as_much_as_a_token():
    decoding = Decoding(128, num_blocks=1200)
    for at in range(128):
        decoding.look([True] * 5, at=at)
    alone = Decoding(1)
    alone.look([True] * 5)
    assert alone.guesses()[0] > 5
    crowd = StepCost(base_ns=9e6, per_row_ns=1e6, per_logit_ns=0.0, per_pair_ns=0.0)
    decoding.cost = crowd
    assert decoding.guesses() == [], "nobody even looks where no guess can pay"


def test_the_likeliest_are_guessed_first():
    decoding = Decoding(
        3, cost=StepCost(base_ns=4e7, per_row_ns=1e7, per_logit_ns=0, per_pair_ns=0)
    )
    decoding.look([True] * 20, at=0)
    decoding.look([True, False] * 6, at=1)
    decoding.look([False] * 5, at=2)
    first, second, third = decoding.guesses()
    assert first > second >= third == 1


def test_measured_times_are_believed_over_the_line():
    """Two rows may take much longer than one, and eight no longer than two."""
    decoding = Decoding()
    decoding.look([True, False] * 8)
    assert decoding.guesses()[0] > 1
    for _ in range(3):
        decoding.took(1, 90_000_000)
        for rows in range(2, 10):
            decoding.took(rows, 250_000_000)
    assert decoding.guesses() == [1]
    decoding.look([True] * 30)
    assert decoding.guesses() == [1 + 8], "eight right guesses pay for the slower step"


def test_what_was_too_slow_is_tried_again_after_long():
    decoding = Decoding()
    decoding.look([True] * 9)
    for rows in range(2, 10):
        decoding.took(rows, 10**12)
    tries = [decoding.guesses()[0] > 1 for _ in range(600)]
    assert sum(tries) == 2


def test_steps_with_chunks_say_nothing_about_rows():
    decoding = Decoding(2)
    planned = SimpleNamespace(runs=decoding.runs, num_decodes=1, pairs=0)
    counts = b"\1\0\0\0" * 2
    decoding.speculation.learn(
        planned, StepResult(step=1, counts=counts, duration_ns=10**12), decoding.cost
    )
    decoding.look([True] * 9)
    assert decoding.guesses()[0] > 1


def test_many_looks_take_turns():
    """Looking up takes time too: at most a hundredth of a step."""
    short = StepCost(base_ns=5e6, per_row_ns=1e4, per_logit_ns=0.0, per_pair_ns=0.0)
    decoding = Decoding(16, cost=short)
    looked = [decoding.guesses() for _ in range(20)]
    assert all(0 < sum(each) < 16 for each in looked)
    totals = [sum(each[at] for each in looked) for at in range(16)]
    assert max(totals) - min(totals) <= 1


def test_off_is_off():
    decoding = Decoding(draft_max=0)
    decoding.look([True] * 20)
    assert decoding.guesses() == []


def test_steps_that_take_no_time_gain_nothing():
    free = StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)
    decoding = Decoding(cost=free)
    decoding.look([True] * 20)
    assert decoding.guesses() == []


@pytest.mark.parametrize(("new", "left"), [(8, 6), (2, 0), (1, 0)])
def test_the_last_token_is_never_guessed(new, left):
    decoding = Decoding(new=new)
    decoding.runs[0].known_ahead += 1
    decoding.look([True] * 20)
    assert decoding.guesses() == [1 + left]


def test_a_table_grows_for_guesses_where_blocks_abound():
    decoding = Decoding(known=111)
    decoding.look([True] * 20)
    assert decoding.guesses() == [9]
    assert len(decoding.grown[0]) == 1
    scarce = Decoding(known=111, num_blocks=8)
    scarce.look([True] * 20)
    assert scarce.guesses() == [2], "one place of the table is left, and no block to spare"
    assert scarce.grown == {}


def test_rows_come_from_the_budget():
    decoding = Decoding()
    decoding.look([True] * 20)
    assert decoding.guesses(max_rows=4) == [1 + 3]
    assert decoding.guesses(step_ns_max=95_000_000) == [1 + 8], "a base over the limit buys rows"
    step = int(COST.base_ns * 1.3)
    assert 1 < decoding.guesses(step_ns_max=step)[0] <= 9


def test_rates_follow_a_change_within_a_dozen_trials():
    rate = Acceptance()
    for _ in range(100):
        rate.learn(drafted=8, accepted=8, guessed=GUESS_RIGHT)
    assert rate.rate > 0.9
    for _ in range(12):
        rate.learn(drafted=8, accepted=0, guessed=GUESS_WRONG)
    assert rate.rate < 0.35


def test_times_between_seen_ones_follow_the_line():
    times = StepTimes()
    assert times.of(3, COST) == 93e6
    times.learn(3, 200_000_000)
    assert times.of(3, COST) == 200e6
    assert times.after(4, 200e6, COST) == 201e6
    times.learn(3, 10**15)
    assert times.of(3, COST) == 350e6, "one step moves a time only so far"
    times.learn(10**6, 5)
    times.learn(2, 0)
    assert times.of(2, COST) == 92e6


def test_plans_tell_guesses_for_every_slot():
    assert StepPlan(step=1).guesses == b""
