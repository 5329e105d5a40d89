"""What the inputs of matrices look like: rows of activations, kept while a program runs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32
from tercet.devices.direct import Direct
from tercet.devices.direct import Sequence as Run
from tercet.devices.reference.device import ReferenceExecutable, Watch
from tercet.program.operations import Operation
from tercet.program.program import Program

Tokens = Sequence[Sequence[int]]


def observe(
    program: Program,
    weights: Mapping[str, F32],
    tokens: Tokens,
    *,
    wanted: Iterable[str],
    rows_max: int,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, F32]:
    """[rows, K] of each wanted input of an unfused program: rows spread evenly over all tokens, at
    most `rows_max`. `advance` is called after each sequence.
    """
    keeper = _Keeper(wanted, every=math.ceil(sum(map(len, tokens)) / rows_max))
    for sequence in _run(program, weights, tokens, keeper):
        keeper.passed += len(sequence)
        advance()
    return {name: np.concatenate(pieces) for name, pieces in keeper.kept.items()}


def observe_products(
    program: Program,
    weights: Mapping[str, F32],
    tokens: Tokens,
    *,
    wanted: Iterable[str],
    advance: Callable[[], object] = lambda: None,
) -> dict[str, F32]:
    """x^T x [K, K] of each wanted input over all tokens, as a mean over rows."""
    adder = _Adder(wanted)
    for _ in _run(program, weights, tokens, adder):
        adder.seen.clear()
        advance()
    count = np.float32(sum(map(len, tokens)))
    return {name: total / count for name, total in adder.totals.items()}


def _run(
    program: Program, weights: Mapping[str, F32], tokens: Tokens, watch: Watch
) -> Iterator[Sequence[int]]:
    """Each sequence, after it was computed under the eyes of `watch`."""
    executable = ReferenceExecutable(program, weights, watch)
    for sequence in tokens:
        direct = Direct(executable, -(-len(sequence) // BLOCK_TOKENS))
        executable.logits(direct.batch([(Run(), sequence)]))
        yield sequence


class _Adder:
    """Sums the products of the wanted inputs."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self.totals: dict[str, F32] = {}
        self.seen: dict[str, None] = {}
        """Inputs that were met in this sequence: several matrices may read one."""
        self._wanted = frozenset(wanted)

    def __call__(self, operation: Operation, x: F32) -> None:
        name = operation.inputs[0]
        if name in self._wanted and name not in self.seen:
            self.seen[name] = None
            product = x.T @ x
            self.totals[name] = self.totals[name] + product if name in self.totals else product


class _Keeper:
    """Keeps every n-th row of the wanted inputs, counted over all sequences."""

    def __init__(self, wanted: Iterable[str], *, every: int) -> None:
        self.kept: dict[str, list[F32]] = {name: [] for name in wanted}
        self.passed = 0
        self._every = every
        self._last: dict[str, int] = {}

    def __call__(self, operation: Operation, x: F32) -> None:
        name = operation.inputs[0]
        if name not in self.kept or self._last.get(name) == self.passed:
            return
        self._last[name] = self.passed
        self.kept[name].append(np.array(x[-self.passed % self._every :: self._every], order="C"))
