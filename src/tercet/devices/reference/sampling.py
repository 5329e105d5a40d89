"""From logits to tokens: the specification of every later device's sampler.

For each row, in this order:

1. logit bias (added; ids that are given twice add up)
2. repetition penalty over prompt and output: a positive logit is divided, a negative multiplied
   (Keskar et al., "CTRL", 2019, section 4.1); then frequency x count and presence over the output
   are subtracted (OpenAI's API)
3. bans: a bias of -inf (`min_tokens` bans the end ids so) holds whatever else touched the id
4. greedy rows (temperature 0): the highest score, ties to the lower id. Done.
5. temperature divides
6. top-k: the k best, ties to the lower id
7. top-p: the shortest head of those whose mass, of what top-k left, is at least p (Holtzman et
   al., 2020); at least one
8. min-p: those at least min-p times as probable as the best (Nguyen et al., 2024)
9. Gumbel noise of (seed, choice, position, id) is added and the highest sum wins: an exact draw
   that depends on nothing but the row itself (`noise`)

A row of which every id is banned takes the best raw logit, as if nothing was asked of it (the
lowest id, where even those are all -inf). A row with a NaN or +inf logit raises `ValueError`: it
comes from broken weights or a broken kernel, and no token would be true. An id below V is all
that can come out, since only columns compete.

Log-probabilities and ranks are of the raw distribution, before all of this; -9999 stands for
anything less probable (JSON has no -inf; OpenAI's API does the same).
"""

from dataclasses import dataclass

import numpy as np

from tercet.devices.contract import F32, F64, I32, I64, Sampling
from tercet.devices.reference.draw import draw
from tercet.devices.reference.leading import leading, places

LOGPROB_MIN = -9999.0
_CHUNK_ELEMENTS = 1 << 18
"""Scores worked on at once: temporaries stay in a core's cache."""
_FINITE_MAX = np.float32(1e38)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRows:
    """What `sample` gave, R entries each; see `devices.contract.Outputs`."""

    tokens: I32
    logprobs: F32
    ranks: I32
    top_ids: I32
    """[R, K]; -1 in rows that did not ask."""
    top_logprobs: F32
    scored_logprobs: F32
    scored_ranks: I32
    margins: F32
    """Best minus second best: of logits (greedy) or perturbed scores (drawn); inf where only one
    competed or where margins were not wanted."""


def sample(
    logits: F32, sampling: Sampling, scored_ids: I32, *, want_margins: bool = True
) -> SampledRows:
    """Choose a token for each row of `logits` [R, V], as the module says, in any company the same.

    `logits` is scratch space during the call and unchanged after it.
    """
    num_rows, vocab = logits.shape
    _refuse_foreign_ids(sampling, vocab)
    tokens = np.zeros(num_rows, np.int32)
    margins = np.full(num_rows, np.inf, np.float32)
    greedy = sampling.temperature <= 0.0
    touched = (np.diff(sampling.history_ends, prepend=0) > 0) | (
        np.diff(sampling.bias_ends, prepend=0) > 0
    )
    plain = np.flatnonzero(greedy & ~touched)
    if len(plain) == num_rows:
        tokens, margins = _best(logits, plain, want_margins)
    elif len(plain):
        for rows in _chunks(plain, vocab):
            tokens[rows], margins[rows] = _best(logits[rows], rows, want_margins)
    for rows in _chunks(np.flatnonzero(~greedy | touched), vocab):
        scores = _adjusted(logits, sampling, rows)
        barred = np.flatnonzero(scores.max(axis=1) == -np.inf)
        tokens[rows], margins[rows] = _best(scores, rows, want_margins)
        tokens[rows[barred]] = logits[rows[barred]].argmax(axis=1)
        margins[rows[barred]] = np.inf
        drawn = np.setdiff1d(np.flatnonzero(~greedy[rows]), barred, assume_unique=True)
        if len(drawn):
            chosen = scores if len(drawn) == len(rows) else scores[drawn]
            tokens[rows[drawn]], margins[rows[drawn]] = draw(chosen, sampling, rows[drawn])
    return _with_logprobs(logits, sampling, scored_ids, (tokens, margins))


def _chunks(rows: I64, vocab: int) -> list[I64]:
    size = max(1, _CHUNK_ELEMENTS // vocab)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _refuse_foreign_ids(sampling: Sampling, vocab: int) -> None:
    for name, ids in (("history", sampling.history_ids), ("bias", sampling.bias_ids)):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab:
            raise ValueError(f"{name} names a token outside the vocabulary of {vocab}")


def _best(scores: F32, rows: I64, want_margins: bool) -> tuple[I32, F32]:
    """The highest score of each row and its distance from the next; `scores` is restored."""
    tokens = scores.argmax(axis=1)
    here = np.arange(len(tokens))
    best = scores[here, tokens]
    broken = np.flatnonzero(np.isnan(best) | (best == np.inf))
    if len(broken):
        raise ValueError(f"the logits of row {rows[broken[0]]} are not finite")
    margins = np.full(len(tokens), np.inf, np.float32)
    if want_margins and scores.shape[1] > 1:
        writable = scores if scores.flags.writeable else scores.copy()
        writable[here, tokens] = -np.inf
        second = writable.max(axis=1)
        writable[here, tokens] = best
        two = second > -np.inf
        margins[two] = best[two] - second[two]
    return tokens.astype(np.int32), margins


def _adjusted(logits: F32, sampling: Sampling, rows: I64) -> F32:
    """[r, V] a copy of the rows' logits with biases, penalties and bans (steps 1 to 3)."""
    scores: F32 = logits[rows]
    which, entries = _entries(sampling.bias_ends, rows)
    ids, values = sampling.bias_ids[entries], sampling.bias_values[entries]
    banned = values == -np.inf
    if len(which):
        np.add.at(scores, (which[~banned], ids[~banned]), values[~banned])
    seen, entries = _entries(sampling.history_ends, rows)
    if len(seen):
        past, counts = sampling.history_ids[entries], sampling.history_counts[entries]
        repetition = sampling.repetition[rows][seen].astype(np.float64)
        frequency = sampling.frequency[rows][seen].astype(np.float64)
        presence = sampling.presence[rows][seen].astype(np.float64)
        score = scores[seen, past].astype(np.float64)
        finite = np.isfinite(score)  # 0 x inf would be NaN; infinite scores stay as they are
        score[finite] = np.where(score > 0.0, score / repetition, score * repetition)[finite]
        score -= np.where(finite, frequency * counts + presence * (counts > 0), 0.0)
        score[finite] = np.clip(score[finite], -_FINITE_MAX, _FINITE_MAX)
        scores[seen, past] = score
    scores[which[banned], ids[banned]] = -np.inf
    return scores


def _entries(ends: I32, rows: I64) -> tuple[I64, I64]:
    """CSR of some rows: for each entry its place among `rows`, and its index."""
    starts = np.where(rows > 0, ends[rows - 1], 0).astype(np.int64)
    counts = ends[rows] - starts
    which = np.repeat(np.arange(len(rows)), counts)
    return which, np.repeat(starts, counts) + places(counts)


def _with_logprobs(
    logits: F32, sampling: Sampling, scored_ids: I32, drawn: tuple[I32, F32]
) -> SampledRows:
    num_rows, vocab = logits.shape
    tokens, margins = drawn
    logprobs, scored_logprobs = np.zeros((2, num_rows), np.float32)
    ranks, scored_ranks = np.zeros((2, num_rows), np.int32)
    num_top = min(vocab, max(0, int(sampling.num_logprobs.max(initial=0))))
    top_ids = np.full((num_rows, num_top), -1, np.int32)
    top_logprobs = np.zeros((num_rows, num_top), np.float32)
    asked = (sampling.num_logprobs >= 0) | (scored_ids >= 0)
    for rows in _chunks(np.flatnonzero(asked), vocab):
        raw = logits if len(rows) == num_rows else logits[rows]
        total = _log_total(raw, rows)
        wants = sampling.num_logprobs[rows] >= 0
        chosen, scored = rows[wants], rows[scored_ids[rows] >= 0]
        logprobs[chosen], ranks[chosen] = _placed(raw[wants], tokens[chosen], total[wants])
        known = scored_ids[rows] >= 0
        scored_logprobs[scored], scored_ranks[scored] = _placed(
            raw[known], scored_ids[scored], total[known]
        )
        best = np.flatnonzero(sampling.num_logprobs[rows] > 0)
        if len(best):
            ids = _top(raw[best], num_top)
            top_ids[rows[best]] = ids
            values = np.take_along_axis(raw[best], ids.astype(np.int64), axis=1)
            top_logprobs[rows[best]] = _logprob(values, total[best, None])
    return SampledRows(
        tokens=tokens,
        logprobs=logprobs,
        ranks=ranks,
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        scored_logprobs=scored_logprobs,
        scored_ranks=scored_ranks,
        margins=margins,
    )


def _log_total(raw: F32, rows: I64) -> F64:
    """[r] log of the sum of exponentials; log V where every logit is -inf (a flat row)."""
    top = raw.max(axis=1)
    broken = np.flatnonzero(np.isnan(top) | (top == np.inf))
    if len(broken):
        raise ValueError(f"the logits of row {rows[broken[0]]} are not finite")
    top = np.where(top == -np.inf, np.float32(0.0), top)
    mass = np.exp(raw - top[:, None]).astype(np.float64).sum(axis=1)
    with np.errstate(divide="ignore"):
        total: F64 = np.log(mass) + top
    return np.where(mass == 0.0, np.log(raw.shape[1]), total)


def _logprob(values: F32, total: F64) -> F32:
    return np.maximum(values.astype(np.float64) - total, LOGPROB_MIN).astype(np.float32)


def _placed(raw: F32, ids: I32, total: F64) -> tuple[F32, I32]:
    """Log-probability and rank of one id of each row; equal logits rank by id."""
    values = raw[np.arange(len(ids)), ids]
    above = np.count_nonzero(raw > values[:, None], axis=1)
    for row in np.flatnonzero(np.count_nonzero(raw == values[:, None], axis=1) > 1):
        above[row] += np.count_nonzero(raw[row, : ids[row]] == values[row])
    return _logprob(values, total), (above + 1).astype(np.int32)


def _top(raw: F32, count: int) -> I32:
    """[r, count] the best ids; -inf logits follow after all others, lowest id first."""
    ids = leading(raw, count)[:, :count]
    if ids.shape[1] < count:
        ids = np.pad(ids, ((0, 0), (0, count - ids.shape[1])), constant_values=-1)
    for row in np.flatnonzero(ids.min(axis=1) < 0):
        rest = np.flatnonzero(raw[row] == -np.inf)
        missing = ids[row] < 0
        ids[row, missing] = rest[: np.count_nonzero(missing)]
    return ids
