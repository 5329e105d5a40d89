"""How long steps take on this device, as the linear coefficients that planners and watchers use.

A few steps of different make-up run on blocks that nobody holds yet. What varies between them:

    case       rows  logits rows  context before     tells
    single     1     1            0                  base + one row
    chunk      n     1            0                  a row more
    scored     n     n            0                  a logits row more
    far        n     1            c                  an attended pair more

Coefficients are the non-negative least squares of the relative errors, so that short steps are
fitted as well as long ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.devices.contract import F64, Batch, Executable, MadeUp, Sampling
from tercet.messages.plan import StepCost

_BUDGET_NS = 250_000_000
"""Time that all measured steps together may take, roughly; at least one round of them runs."""
_ROUNDS_MAX = 3
_CHUNKS = (256, 128, 64, 32, 16, 8)
"""Rows of the longer cases: the first with which one round is expected to stay in the budget."""
_SINGLES_PER_ROW = 1 / 8
"""What a further row costs, guessed in single steps, to choose among the chunks."""
_CONTEXT_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Case:
    """One sequence: so many rows after so many computed tokens, so many of them with logits."""

    rows: int
    logits: int
    before: int

    @property
    def pairs(self) -> int:
        return self.rows * self.before + self.rows * (self.rows + 1) // 2


def measure(
    executable: Executable,
    *,
    shape: ModelShape,
    blocks: range,
    clock: Callable[[], int],
) -> StepCost:
    """Run a few steps on these blocks of the bound memory, whose contents are undefined
    afterwards. `clock` gives nanoseconds.
    """
    tokens = min(len(blocks) * BLOCK_TOKENS, shape.context_max)

    def time(case: _Case) -> int:
        started = clock()
        outputs = executable.run(_batch(case, shape, blocks))
        return outputs.duration_ns or clock() - started

    single = _Case(1, 1, 0)
    time(single)  # first touch of memory, lazy set-up
    first = time(single)
    chunk = max(1, min(_chunk(first), tokens // 2))
    before = max(0, min(_CONTEXT_MAX, tokens - chunk))
    cases = [single, _Case(chunk, 1, 0), _Case(chunk, chunk, 0), _Case(chunk, 1, before)]
    times = np.full((len(cases), _ROUNDS_MAX), np.inf)
    times[0, 0] = first
    spent = 0
    for round_ in range(_ROUNDS_MAX):
        for place, case in enumerate(cases):
            if place or round_:
                times[place, round_] = time(case)
                spent += int(times[place, round_])
        if spent * (round_ + 2) > _BUDGET_NS * (round_ + 1):
            break
    return fit(
        np.array([[1, case.rows, case.logits, case.pairs] for case in cases], np.float64),
        np.minimum.reduce(times, axis=1),
    )


def _chunk(single_ns: int) -> int:
    for rows in _CHUNKS:
        if 3 * single_ns * (1 + rows * _SINGLES_PER_ROW) <= _BUDGET_NS:
            return rows
    return _CHUNKS[-1]


def fit(sizes: F64, times_ns: F64) -> StepCost:
    """Non-negative coefficients of [n, 4] sizes (1, rows, logits rows, pairs) that give the times
    with the least relative error.
    """
    if times_ns.max() <= 0.0:
        return StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)
    weight = 1.0 / np.maximum(times_ns, 1.0)
    base, row, logit, pair = _non_negative(sizes * weight[:, None], times_ns * weight)
    return StepCost(base_ns=base, per_row_ns=row, per_logit_ns=logit, per_pair_ns=pair)


def _non_negative(matrix: F64, target: F64) -> list[float]:
    """The best of the least squares over all subsets of the four columns whose solution has no
    negative part: exact, and fifteen small systems.
    """
    columns = matrix.shape[1]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    best, best_error = np.zeros(columns), float((target**2).sum())
    for mask in range(1, 1 << columns):
        chosen = [column for column in range(columns) if mask >> column & 1]
        scaled = matrix[:, chosen] / scale[chosen]
        solution = np.linalg.lstsq(scaled, target, rcond=None)[0]
        error = float(((scaled @ solution - target) ** 2).sum())
        if (solution >= 0.0).all() and error < best_error * (1.0 - 1e-9):
            best, best_error = np.zeros(columns), error
            best[chosen] = solution / scale[chosen]
    return [float(value) for value in best]


def _batch(case: _Case, shape: ModelShape, blocks: range) -> Batch:
    context = case.before + case.rows
    num_blocks = -(-context // BLOCK_TOKENS)
    rows = np.arange(case.rows, dtype=np.int32)
    zeros = np.zeros(case.logits, np.int32)
    ones = np.ones(case.logits, np.float32)
    none = np.zeros(0, np.int32)
    return Batch(
        ids=rows % np.int32(shape.vocab),
        positions=rows + np.int32(case.before),
        row_ends=np.array([case.rows], np.int32),
        contexts=np.array([context], np.int32),
        tables=np.array(blocks[:num_blocks], np.int32),
        table_ends=np.array([num_blocks], np.int32),
        logits_rows=rows[case.rows - case.logits :],
        sampling=Sampling(
            temperature=ones * np.float32(0.0),
            top_k=zeros,
            top_p=ones,
            min_p=ones * np.float32(0.0),
            seed=zeros.astype(np.uint64),
            choice=zeros,
            position=zeros,
            repetition=ones,
            presence=ones * np.float32(0.0),
            frequency=ones * np.float32(0.0),
            history_ids=none,
            history_counts=none,
            history_ends=zeros,
            bias_ids=none,
            bias_values=none.astype(np.float32),
            bias_ends=zeros,
            num_logprobs=zeros - np.int32(1),
        ),
        scored_ids=zeros - np.int32(1),
        made_up=MadeUp(vocab=shape.vocab, end_ids=shape.end_ids, end_position=zeros),
    )
