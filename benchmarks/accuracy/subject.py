"""A model on a device, as it serves, answering all tasks."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.accuracy.statistics import F64, divergences, log_softmax
from benchmarks.accuracy.tasks import Ending, Tasks, kl_rows, prefer
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, Batch, Executable
from tercet.devices.direct import Direct, greedy
from tercet.devices.direct import Sequence as Computed

Item = TypeVar("Item")
ROWS_MAX = 1024
"""Tokens of a step; a longer text is a step of its own."""
NUM_BLOCKS = 4 * ROWS_MAX // BLOCK_TOKENS * 2


@runtime_checkable
class Scoring(Executable, Protocol):
    """An executable that gives its logits."""

    def logits(self, batch: Batch) -> F32:
        """[R, V]"""
        ...


@dataclass(frozen=True)
class Answers:
    """What a model said to all tasks."""

    window_nll: F64
    """[windows, WINDOW - 1] negative log-likelihoods."""
    word_right: NDArray[np.bool_]
    """[words] every token of the word was the likeliest."""
    choice_right: NDArray[np.bool_]
    kl: F64
    """[windows, rows] divergence from the truth; empty for the truth itself."""
    same_best: NDArray[np.bool_]
    """[windows, rows] the truth's likeliest token is the likeliest; empty for the truth itself."""


@dataclass(frozen=True)
class Subject:
    """An executable bound to memory of its own."""

    direct: Direct
    executable: Scoring
    name: str
    vocab: int

    def answer(self, tasks: Tasks, truth: NDArray[np.float32]) -> Answers:
        """All answers; `truth` [windows, rows, V] of log-probabilities is compared with, and filled
        in where it is all zeros.
        """
        nll, kl, same = [], [], []
        for place, window in enumerate(self._shown(tasks.windows, "windows")):
            logits = next(self._logits([(window[:-1], 0)]))
            nll.append(-_scores(logits, window[1:]))
            chosen = logits[kl_rows()]
            if truth[place].any():
                kl.append(divergences(truth[place], chosen))
                same.append(chosen.argmax(axis=1) == truth[place].argmax(axis=1))
            else:
                truth[place] = log_softmax(chosen)
        words = [self._scored(some) for some in _batches(self._shown(tasks.words, "words"))]
        ends = [one for pair in tasks.choices for one in pair]
        ways = [self._scored(some) for some in _batches(self._shown(ends, "choices"))]
        sums = [total for some in ways for total, _ in some]
        pairs = zip(sums[::2], sums[1::2], tasks.choices, tasks.right, strict=True)
        return Answers(
            window_nll=np.array(nll),
            word_right=np.array([best for some in words for _, best in some]),
            choice_right=np.array([prefer((a, b), ends) == right for a, b, ends, right in pairs]),
            kl=np.array(kl),
            same_best=np.array(same, np.bool_),
        )

    def _scored(self, endings: Sequence[Ending]) -> list[tuple[float, bool]]:
        """The log-likelihood of each ending, and whether each of its tokens was the likeliest."""
        work = [(one.ids[:-1], len(one.ids) - 1 - one.count) for one in endings]
        found = []
        for one, logits in zip(endings, self._logits(work), strict=True):
            wanted = one.ids[-one.count :]
            best = bool((logits.argmax(axis=1) == np.array(wanted)).all())
            found.append((float(_scores(logits, wanted).sum()), best))
        return found

    def _logits(self, work: Sequence[tuple[Sequence[int], int]]) -> Iterator[F32]:
        """Logits of each text's rows from the given one on, all texts in one step."""
        computed = [Computed() for _ in work]
        batch = self.direct.batch(
            [(one, ids) for one, (ids, _) in zip(computed, work, strict=True)]
        )
        starts = [0, *batch.row_ends[:-1].tolist()]
        rows = np.concatenate(
            [
                np.arange(start + first, start + len(ids), dtype=np.int32)
                for start, (ids, first) in zip(starts, work, strict=True)
            ]
        )
        batch = replace(
            batch,
            logits_rows=rows,
            sampling=greedy(len(rows)),
            scored_ids=np.full(len(rows), -1, np.int32),
        )
        logits = self.executable.logits(batch)
        for one in computed:
            self.direct.close(one)
        at = 0
        for ids, first in work:
            count = len(ids) - first
            yield logits[at : at + count]
            at += count

    def _shown(self, items: Sequence[Item], what: str) -> Iterator[Item]:
        return iter(tqdm(items, desc=f"{self.name}: {what}", file=sys.stderr, mininterval=5))


def _scores(logits: F32, wanted: Sequence[int]) -> F64:
    """The log-probability of a token for each row."""
    top = logits.max(axis=1)
    sums = np.exp(logits - top[:, None]).sum(axis=1, dtype=np.float64)
    found: F64 = logits[np.arange(len(wanted)), list(wanted)] - top - np.log(sums)
    return found


def _batches(endings: Iterator[Ending]) -> Iterator[list[Ending]]:
    """Endings that fit a step together, in order."""
    some: list[Ending] = []
    for one in endings:
        if some and sum(len(other.ids) for other in some) + len(one.ids) > ROWS_MAX:
            yield some
            some = []
        some.append(one)
    if some:
        yield some
