"""The cost device and what it compiles to."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tercet.base.errors import must
from tercet.devices.contract import (
    F32,
    I32,
    U64,
    Batch,
    CompileOptions,
    KvForm,
    KvMemory,
    MadeUp,
    Outputs,
)
from tercet.devices.cost.config import CostConfig
from tercet.devices.cost.durations import Duration, duration_of, no_time
from tercet.devices.noise import row_keys
from tercet.devices.reference.packing import Float32Packer
from tercet.program.costs import Sizes
from tercet.program.packing import StoredWeight
from tercet.program.program import Program

COST_BLOCK_SHAPE = (1,)
"""A block holds nothing, yet has an address: arenas stay small."""
Sleep = Callable[[int], None]
"""Let so many nanoseconds pass."""


class CostDevice:
    """`sleep` is called with each step's duration: real under `runtime`; None under `sim`, where
    the duration in the result is all there is. `duration` stands in for the roofline that
    `config` describes.
    """

    name = "cost"

    def __init__(
        self,
        *,
        config: CostConfig = CostConfig(),  # noqa: B008  frozen
        duration: Duration | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        self._config = config
        self._duration = duration
        self._sleep = sleep

    def numerics_id(self) -> str:
        return "cost"

    def packer(self) -> Float32Packer:
        """The reference device's: a model with weights may be played, too."""
        return Float32Packer()

    def check(self, options: CompileOptions) -> None:
        """Any option will do: nothing is kept."""

    def kv_form(self, program: Program, options: CompileOptions) -> KvForm:
        """Nothing is kept; blocks have a size so that there can be some."""
        del program, options
        return KvForm("none", 4 * math.prod(COST_BLOCK_SHAPE))

    def compile(
        self,
        program: Program,
        weights: Mapping[str, StoredWeight],
        options: CompileOptions = CompileOptions(),  # noqa: B008  frozen
    ) -> "CostExecutable":
        """An executable of any program; weights and options are not looked at."""
        del weights, options
        duration = self._duration or duration_of(program, self._config)
        return CostExecutable(duration=duration, sleep=self._sleep, repeat=self._config.repeat)


class CostExecutable:
    """Answers a batch with a duration and tokens that are a function of (seed, choice, position).

    A row draws an end id where the slot says (`MadeUp.end_position`) and never before. Where
    log-probabilities are asked for, the token (or the scored one) has 1/2, the next ids in
    circular order 1/4, 1/8 and so on.
    """

    block_shape: tuple[int, ...] = COST_BLOCK_SHAPE
    kv_dtype: Any = np.float32

    def __init__(self, *, duration: Duration, sleep: Sleep | None, repeat: int = 0) -> None:
        self._duration = duration
        self._sleep = sleep
        self._repeat = repeat

    def bind(self, kv: KvMemory) -> None:
        """Nothing is read or written."""

    def run(self, batch: Batch) -> Outputs:
        """Let the step's time pass; invented tokens."""
        duration = 0 if self._duration is no_time else self._duration(sizes_of(batch))
        if duration > 0 and self._sleep is not None:
            self._sleep(duration)
        made_up, sampling = batch.made_up, batch.sampling
        if made_up is None:
            must(False, "a batch for the cost device does not say what to make up")
            raise AssertionError
        tokens = invent(
            sampling.seed,
            sampling.choice,
            sampling.position,
            made_up=made_up,
            repeat=self._repeat,
        )
        vocab = made_up.vocab
        asked = batch.sampling.num_logprobs
        logprobs, ranks = _half(asked >= 0)
        scored_logprobs, scored_ranks = _half(batch.scored_ids >= 0)
        best = np.where(batch.scored_ids >= 0, batch.scored_ids, tokens)
        places = np.arange(min(vocab, max(0, int(asked.max(initial=0)))), dtype=np.int32)
        return Outputs(
            tokens=tokens,
            logprobs=logprobs,
            ranks=ranks,
            top_ids=(best[:, None] + places) % np.int32(vocab),
            top_logprobs=np.tile(_halves(len(places)), (len(tokens), 1)),
            scored_logprobs=scored_logprobs,
            scored_ranks=scored_ranks,
            margins=np.full(len(tokens), np.inf, np.float32),
            duration_ns=duration,
        )


def sizes_of(batch: Batch) -> Sizes:
    """What the step's cost depends on."""
    contexts = batch.contexts.astype(np.int64)
    rows = batch.row_ends.astype(np.int64)
    rows[1:] -= batch.row_ends[:-1]
    # Row i of n at the end of a context of c tokens sees c - n + 1 + i of them.
    pairs = rows * contexts - rows * (rows - 1) // 2
    return Sizes(
        rows=len(batch.ids),
        logits_rows=len(batch.logits_rows),
        attended_pairs=int(pairs.sum()),
        context_tokens=int(contexts.sum()),
    )


def invent(seed: U64, choice: I32, position: I32, *, made_up: MadeUp, repeat: int = 0) -> I32:
    """[R] the token of each row: what an undisturbed run has at that place, too."""
    keys = row_keys(seed, choice, position % np.int32(repeat) if repeat else position)
    tokens = (keys % np.uint64(made_up.vocab)).astype(np.int32)
    for _ in made_up.end_ids:  # as many steps as there are ids to step over
        for end in made_up.end_ids:
            tokens[tokens == end] = (end + 1) % made_up.vocab
    if made_up.end_ids:
        tokens[position == made_up.end_position] = made_up.end_ids[0]
    return tokens


def _half(wanted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> tuple[F32, I32]:
    """Log-probability of 1/2 and rank 1 where wanted, 0 elsewhere."""
    return np.where(wanted, np.float32(-math.log(2)), np.float32(0)), wanted.astype(np.int32)


def _halves(count: int) -> F32:
    """Logarithms of 1/2, 1/4, 1/8 ..."""
    return np.array([-(place + 1) * math.log(2) for place in range(count)], np.float32)
