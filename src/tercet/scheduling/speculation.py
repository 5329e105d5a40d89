"""Whether guessing the next tokens of tasks pays, and for how many of them.

    one stream     | base ................................. |row|        a row more is cheap:
    guesses        | base ................................. |row|g|g|g|  guess deep
    many streams   | base ............ |row|row|row|row|row|row|row|row| a row more costs almost as
                                                                         much as a token: guess
                                                                         only what is nearly sure

A step is worth tokens / time. The n-th guess in a row is right with the task's rate to the n-th,
and costs what a row costs; guesses are taken, the likeliest first, as long as the worth grows.

Rates are measured for every task by itself. The engine can look up what it would guess without
computing a row, and see in the same step whether it would have been right: so a task whose text
does not repeat never pays for a trial, and one that begins to quote is noticed at once.

What rows cost is measured at start as a line and learned here from the steps themselves, since no
device is a line (two rows may take twice as long as one, and three the same as two).
"""

from array import array
from math import ceil

from tercet.base.ids import BLOCK_TOKENS
from tercet.cache.cache import Cache
from tercet.messages.plan import StepCost, StepResult
from tercet.scheduling.batch import Planned
from tercet.scheduling.budget import Budget
from tercet.scheduling.run import TaskRun

_WORTHWHILE = 1.1
"""By so much tokens / time must grow."""
_LOOK_NS = 15_000
"""What it takes the engine to look up a guess."""
_LOOK_SHARE = 0.01
"""Of a step that may be spent on looking for what is not verified."""
_RETRY_STEPS = 256
"""How often what measured times speak against is tried all the same: they may be out of date."""


ROWS_MAX = 64
"""Steps of more rows are as the measured line says."""


class Speculation:
    """Decides step by step; told what came of it. `draft_max` 0: never guesses."""

    def __init__(self, *, draft_max: int) -> None:
        self._draft_max = draft_max
        self._times = StepTimes()
        self._turn = 0
        self._declined = 0

    def plan(
        self,
        runs: list[TaskRun],
        *,
        cost: StepCost,
        budget: Budget,
        cache: Cache,
        grown: dict[int, tuple[int, ...]],
    ) -> bytes:
        """Give `StepPlan.guesses` of the decoding tasks of a step, empty if nobody guesses.

        Rows are taken from the budget. Tables grow by a block where their tasks would soon need it
        and blocks abound; `grown` (place -> its new blocks) is added to.
        """
        price = self._price(runs, cost)
        if price >= 1.0:
            return b""
        guesses = self._looks(len(runs), runs, cost)
        wanted = self._choose(runs, cost, price)
        for at, deep in wanted.items():
            run = runs[at]
            room = run.capacity - run.context_most
            if deep > room and cache.available > len(runs) and run.holding is not None:
                blocks = cache.extend(run.holding, 1) or []
                grown[at] = (*grown.get(at, ()), *blocks)
                run.extended(len(blocks))
                room += BLOCK_TOKENS * len(blocks)
            guesses[at] = 1 + budget.take_drafts(min(deep, room), context=run.context_most)
        return bytes(guesses) if any(guesses) else b""

    def _price(self, runs: list[TaskRun], cost: StepCost) -> float:
        """Give how likely a guess must be to be worth its row; 1 or more: none is."""
        if not runs or not self._draft_max:
            return 1.0
        count = len(runs)
        each = cost.per_row_ns + cost.per_logit_ns
        taken = self._times.of(count, cost)
        return _WORTHWHILE * each * count / taken if taken > 0 else 1.0

    def _looks(self, count: int, runs: list[TaskRun], cost: StepCost) -> bytearray:
        """Give a 1 for every task whose guess is looked up in any case: in turn, if not all."""
        stride = max(1, ceil(count * _LOOK_NS / (_LOOK_SHARE * self._times.of(count, cost))))
        self._turn += 1
        if stride == 1:
            return bytearray(b"\x01" * count)
        turn = self._turn
        return bytearray([(turn + run.order) % stride == 0 for run in runs])

    def _choose(self, runs: list[TaskRun], cost: StepCost, price: float) -> dict[int, int]:
        """Give how many tokens to guess: place -> count, without those that guess none."""
        candidates: list[tuple[float, int]] = []
        for at, run in enumerate(runs):
            rate = run.acceptance.rate
            if rate <= price:
                continue
            likely = rate
            for _ in range(min(self._draft_max, run.known_max - 1 - run.context_most)):
                if likely <= price:
                    break
                candidates.append((-likely, at))
                likely *= rate
        wanted: dict[int, int] = {}
        if candidates:
            candidates.sort()
            for _, at in candidates[: self._worthwhile(runs, candidates, cost)]:
                wanted[at] = wanted.get(at, 0) + 1
        return wanted

    def _worthwhile(
        self, runs: list[TaskRun], candidates: list[tuple[float, int]], cost: StepCost
    ) -> int:
        """Give how many of the first candidates make tokens / time the largest."""
        count = len(runs)
        rows_ns = self._times.of(count, cost)
        pairs_ns = cost.per_pair_ns * sum([run.context_most for run in runs])
        tokens = float(count)
        best, best_worth = 0, _WORTHWHILE * tokens / (rows_ns + pairs_ns)
        for number, (unlikely, at) in enumerate(candidates, start=1):
            tokens -= unlikely
            rows_ns = self._times.after(count + number, rows_ns, cost)
            pairs_ns += cost.per_pair_ns * runs[at].context_most
            worth = tokens / (rows_ns + pairs_ns)
            if worth > best_worth:
                best, best_worth = number, worth
        if best:
            return best
        self._declined += 1
        return len(candidates) if self._declined % _RETRY_STEPS == 0 else 0

    def learn(self, planned: Planned, result: StepResult, cost: StepCost) -> None:
        """Take account of how long a step took in which nothing but decoding happened."""
        num_runs = len(planned.runs)
        if planned.num_decodes < num_runs or num_runs > ROWS_MAX or result.duration_ns <= 0:
            return
        num_seated = num_runs - array("i", result.counts).count(0)
        rows = num_seated + sum(result.drafted)
        if rows:
            pairs = planned.pairs * rows / num_runs
            self._times.learn(rows, int(result.duration_ns - cost.per_pair_ns * pairs))


class StepTimes:
    """How long steps of so many decoding rows take, attended pairs apart.

    rows     1     2     3     4     5
    learned  21ms  50ms  -     53ms  -        of(3) = 50 ms + a row, of(5) = 53 ms + a row
    """

    _WEIGHT = 0.25
    _RATIO_MIN, _RATIO_MAX = 0.25, 4.0
    """One step moves a time no further than such a one would."""

    def __init__(self) -> None:
        self._learned: dict[int, float] = {}

    def of(self, rows: int, cost: StepCost) -> float:
        """Give the time of so many rows; what was not seen, from the line."""
        known = self._learned.get(rows)
        return cost.predict_ns(rows=rows, logits=rows, pairs=0) if known is None else known

    def after(self, rows: int, before_ns: float, cost: StepCost) -> float:
        """Give the time of so many rows, where one row less takes `before_ns`."""
        known = self._learned.get(rows)
        return before_ns + cost.per_row_ns + cost.per_logit_ns if known is None else known

    def learn(self, rows: int, taken_ns: int) -> None:
        """Take account of a step."""
        if rows > ROWS_MAX or taken_ns <= 0:
            return
        known = self._learned.get(rows)
        if known is None:
            self._learned[rows] = float(taken_ns)
            return
        ratio = min(max(taken_ns / known, self._RATIO_MIN), self._RATIO_MAX)
        self._learned[rows] = known * (1.0 + self._WEIGHT * (ratio - 1.0))
