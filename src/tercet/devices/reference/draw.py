"""Steps 5 to 9 of `sampling`: temperature, top-k, top-p, min-p, noise, the highest sum.

Two ways to the same answer. Rows with top-k or top-p sort a head of the row, as long as it must
be. Rows without compete over the whole vocabulary, yet noise is turned into a number only where
it can still win: the 64 best scores give a bound, and an id below them needs noise of at least
(bound - their least score), which is a comparison of integers.
"""

import numpy as np
from numpy.typing import NDArray

from tercet.devices.contract import F32, F64, I32, I64, U64, Sampling
from tercet.devices.noise import bits_reaching, gumbel, noise_bits, row_keys
from tercet.devices.reference.leading import cells, leading

Flags = NDArray[np.bool_]
_SEED_COUNT = 64
"""Best scores that set the bound for the rest of the vocabulary."""
_HEADS = (256, 4096)
"""Lengths of sorted head that top-p tries before it sorts everything."""


def draw(scores: F32, sampling: Sampling, rows: I64) -> tuple[I32, F32]:
    """Draw a token for each row of `scores` [r, V] (row i is `rows[i]` of `sampling`).

    Returns tokens and margins. Scores hold no NaN and no +inf, and in each row one is finite.
    """
    vocab = scores.shape[1]
    keys = row_keys(sampling.seed[rows], sampling.choice[rows], sampling.position[rows])
    top_k = np.where(
        (sampling.top_k[rows] > 0) & (sampling.top_k[rows] < vocab), sampling.top_k[rows], 0
    )
    top_p = sampling.top_p[rows].astype(np.float64)
    lengths = np.where(top_k > 0, top_k, np.where(top_p < 1.0, _HEADS[0], 0))
    tokens, margins = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.float32)
    row = _Rows(scores, sampling, rows, keys)
    whole = np.flatnonzero(lengths == 0)
    if len(whole):
        tokens[whole], margins[whole] = _draw_whole(row.some(whole))
    # Rows of a like length together: one long head does not make all others long.
    for exponent in np.unique(np.frexp(lengths[lengths > 0] - 0.5)[1]):
        part = np.flatnonzero((lengths > 0) & (np.frexp(lengths - 0.5)[1] == exponent))
        tokens[part], margins[part] = _draw_heads(row.some(part), top_k[part], top_p[part])
    return tokens, margins


class _Rows:
    """Some rows with what every step needs of them."""

    def __init__(self, scores: F32, sampling: Sampling, rows: I64, keys: U64) -> None:
        self.scores, self.sampling, self.rows, self.keys = scores, sampling, rows, keys

    def some(self, part: I64) -> "_Rows":
        if len(part) == len(self.rows):
            return self
        return _Rows(self.scores[part], self.sampling, self.rows[part], self.keys[part])

    def scaled(self, which: I64, ids: I64) -> F64:
        """Scores relative to the row's best, over the temperature: 0 at most, never NaN."""
        top = self.scores.max(axis=1).astype(np.float64)
        temperature = self.sampling.temperature[self.rows].astype(np.float64)
        values = self.scores[which, ids].astype(np.float64)
        scaled: F64 = (values - top[which]) / temperature[which]
        return scaled

    def least(self) -> F64:
        """[r] what `scaled` must reach to pass min-p."""
        min_p = np.minimum(self.sampling.min_p[self.rows].astype(np.float64), 1.0)
        with np.errstate(divide="ignore"):
            least: F64 = np.log(min_p)
        return least

    def perturbed(self, which: I64, ids: I64) -> F64:
        """Scaled scores plus noise; -inf where min-p or a ban leaves the id out."""
        scaled = self.scaled(which, ids)
        noise = gumbel(noise_bits(self.keys[which], ids.astype(np.uint32)))
        kept = (scaled >= self.least()[which]) & (scaled > -np.inf)
        return np.where(kept, scaled + noise, -np.inf)


def _draw_whole(rows: _Rows) -> tuple[I32, F32]:
    vocab = rows.scores.shape[1]
    head = leading(rows.scores, _SEED_COUNT)
    competes = np.zeros(rows.scores.shape, bool)
    which, place = cells(head >= 0)
    ids = head[which, place].astype(np.int64)
    competes[which, ids] = True
    if head.shape[1] < vocab:
        first = np.full(head.shape, -np.inf)
        first[which, place] = rows.perturbed(which, ids)
        lowest = np.full(head.shape, np.inf)
        lowest[which, place] = rows.scaled(which, ids)
        second = np.partition(first, -2, axis=1)[:, -2] if head.shape[1] > 1 else first[:, 0]
        # No second: min-p or bans left one id at most, and it is in the head.
        wide = np.flatnonzero(second > -np.inf)
        least = bits_reaching(second[wide] - lowest[wide].min(axis=1))
        bits = noise_bits(rows.keys[wide, None], np.arange(vocab, dtype=np.uint32)[None])
        competes[wide] |= bits >= least[:, None]
    which, ids = cells(competes)
    return _winners(which, ids, rows.perturbed(which, ids), len(rows.rows))


def _draw_heads(rows: _Rows, top_k: I32, top_p: F64) -> tuple[I32, F32]:
    """Rows with top-k or top-p; the head grows until the longest nucleus is in it."""
    vocab = rows.scores.shape[1]
    tokens, margins = np.zeros(len(rows.rows), np.int32), np.zeros(len(rows.rows), np.float32)
    todo = np.arange(len(rows.rows))
    for length in (*_HEADS, vocab):
        needed = np.where(top_k[todo] > 0, top_k[todo], length)
        part = rows.some(todo)
        head = leading(part.scores, min(vocab, int(needed.max())))
        kept, reached = _nucleus(part, head, top_k[todo], top_p[todo])
        done = np.flatnonzero(reached)
        if len(done):
            ready = part.some(done)
            which, place = cells(kept[done])
            ids = head[done][which, place].astype(np.int64)
            drawn = _winners(which, ids, ready.perturbed(which, ids), len(done))
            tokens[todo[done]], margins[todo[done]] = drawn
        todo = todo[~reached]
        if not len(todo):
            break
    return tokens, margins


def _nucleus(rows: _Rows, head: I32, top_k: I32, top_p: F64) -> tuple[Flags, Flags]:
    """[r, W] which places of the head top-k and top-p keep, and [r] whether the head was enough.

    Sums run along the sorted head one by one, so that they do not depend on its length.
    """
    width = head.shape[1]
    which, place = cells(head >= 0)
    mass = np.zeros(head.shape)
    mass[which, place] = np.exp(rows.scaled(which, head[which, place].astype(np.int64)))
    column = np.arange(width)[None]
    limited = top_k > 0
    mass[(column >= top_k[:, None]) & limited[:, None]] = 0.0
    up_to = np.cumsum(mass, axis=1)
    total = up_to[:, -1].copy()
    free = np.flatnonzero(~limited)
    if len(free):
        part = rows.some(free)
        top = part.scores.max(axis=1, keepdims=True)
        heat = part.sampling.temperature[part.rows].astype(np.float32)[:, None]
        # A sum over float64 rows has one order of additions, whatever stands beside the row.
        with np.errstate(over="ignore"):
            relative = (part.scores - top) / heat  # an overflow is -inf: no mass
        total[free] = np.exp(relative).astype(np.float64).sum(axis=1)
    target = top_p * total
    kept = (up_to - mass < target[:, None]) & (mass > 0.0)
    kept[:, 0] = True
    whole = np.count_nonzero(head >= 0, axis=1) >= np.count_nonzero(rows.scores > -np.inf, axis=1)
    reached = limited | (up_to[:, -1] >= target) | whole
    return kept, reached


def _winners(which: I64, ids: I64, sums: F64, num_rows: int) -> tuple[I32, F32]:
    """The highest sum of each row and its distance from the next; ties go to the first entry.

    Entries are grouped by row in ascending order; every row has one.
    """
    starts = np.searchsorted(which, np.arange(num_rows))
    best = np.maximum.reduceat(sums, starts)
    equal = np.flatnonzero(sums == best[which])
    first = equal[np.flatnonzero(np.diff(which[equal], prepend=-1))]
    rest = sums.copy()
    rest[first] = -np.inf
    second = np.maximum.reduceat(rest, starts)
    apart = np.minimum(best - second, np.finfo(np.float32).max)
    margins = np.where(second > -np.inf, apart, np.inf)
    return ids[first].astype(np.int32), margins.astype(np.float32)
