"""How far a program's next-token distributions are from another one's, on given tokens."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32
from tercet.devices.direct import Direct
from tercet.devices.direct import Sequence as Run
from tercet.devices.reference.device import ReferenceDevice, ReferenceExecutable
from tercet.program.program import Program

Tokens = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Means over all rows of the tokens."""

    perplexity: float
    divergence: float
    """Kullback-Leibler from the other distribution, in nats."""
    changed: float
    """Share of rows whose most probable token is another one."""


def log_probabilities(executable: ReferenceExecutable, sequence: Sequence[int]) -> F32:
    """[tokens, vocabulary] after each token of the sequence."""
    direct = Direct(executable, -(-len(sequence) // BLOCK_TOKENS))
    logits = executable.logits(direct.batch([(Run(), sequence)], every_row=True))
    shifted: F32 = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


class Yardstick:
    """The distributions of an unrounded program on some tokens, to compare others with."""

    def __init__(self, program: Program, weights: Mapping[str, F32], tokens: Tokens) -> None:
        self._tokens = tokens
        exact = ReferenceDevice().compile(program, weights)
        self._exact = [log_probabilities(exact, sequence) for sequence in tokens]

    @property
    def num_sequences(self) -> int:
        return len(self._tokens)

    @property
    def perplexity(self) -> float:
        """Of the unrounded program."""
        pairs = zip(self._exact, self._tokens, strict=True)
        return _perplexity(np.concatenate([_chosen(one, ids) for one, ids in pairs]))

    def distance(
        self,
        program: Program,
        weights: Mapping[str, F32],
        advance: Callable[[], object] = lambda: None,
    ) -> Distance:
        """Of a rounded program; `advance` is called after each sequence."""
        executable = ReferenceDevice().compile(program, weights)
        parts = []
        for part in self._compare(executable):
            parts.append(part)
            advance()
        chosen, divergence, changed = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Distance(
            perplexity=_perplexity(chosen),
            divergence=float(divergence.mean()),
            changed=float(changed.mean()),
        )

    def _compare(self, executable: ReferenceExecutable) -> Iterator[tuple[F32, F32, F32]]:
        for exact, ids in zip(self._exact, self._tokens, strict=True):
            ours = log_probabilities(executable, ids)
            divergence = (np.exp(exact) * (exact - ours)).sum(axis=1)
            changed = (exact.argmax(axis=1) != ours.argmax(axis=1)).astype(np.float32)
            yield _chosen(ours, ids), divergence, changed


def _perplexity(chosen: F32) -> float:
    """Of log-probabilities; kept finite where a model is hopeless."""
    return math.exp(min(-float(chosen.mean(dtype=np.float64)), 700.0))


def _chosen(logs: F32, ids: Sequence[int]) -> F32:
    """The log-probability of each token after the first."""
    after = np.array(ids[1:], np.int64)
    return logs[np.arange(len(after)), after]
