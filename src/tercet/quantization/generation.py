"""Calibration tokens that the model writes itself: what it says is what it will be asked to say.

(Data-free quantization from the model's own samples: Liu et al. 2023, LLM-QAT, section 3.1.)
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.devices.contract import U64, Batch, Executable
from tercet.devices.direct import Direct, Sequence

STREAMS = 16
_SEED = 20_250_101


def generate(
    executable: Executable,
    shape: ModelShape,
    *,
    tokens: int,
    length: int,
    advance: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[list[int]]:
    """Sequences of at most `length` tokens, `tokens` in all, sampled at temperature 1 after a
    token drawn at random; the same for the same model and device. `advance` gets (done, total).
    """
    length = min(length, shape.context_max)
    wanted = [min(length, tokens - start) for start in range(0, tokens, length)]
    writer = _Writer(executable, shape, streams=min(STREAMS, len(wanted)), length=length)
    written: list[list[int]] = []
    while len(written) < len(wanted):
        done = sum(map(len, written))
        for texts in writer.write(wanted[len(written) : len(written) + STREAMS]):
            advance(done + sum(map(len, texts)), tokens)
        written += texts
    return written


class _Writer:
    """Writes texts side by side."""

    def __init__(
        self, executable: Executable, shape: ModelShape, *, streams: int, length: int
    ) -> None:
        self._executable = executable
        self._shape = shape
        self._chance = np.random.default_rng(_SEED)
        self._direct = Direct(executable, streams * -(-length // BLOCK_TOKENS))

    def write(self, lengths: list[int]) -> Iterator[list[list[int]]]:
        """The texts as they grow, until all have these lengths."""
        first = [] if self._shape.bos_id is None else [self._shape.bos_id]
        begun = self._chance.integers(0, self._shape.vocab, len(lengths))
        texts = [
            [*first, int(token)][:wanted] for token, wanted in zip(begun, lengths, strict=True)
        ]
        seeds = self._chance.integers(0, 2**63, len(lengths)).astype(np.uint64)
        sequences = [Sequence() for _ in lengths]
        fresh = [list(text) for text in texts]
        yield texts
        while growing := [at for at, wanted in enumerate(lengths) if len(texts[at]) < wanted]:
            batch = self._direct.batch([(sequences[at], fresh[at]) for at in growing])
            outputs = self._executable.run(_sampled(batch, seeds[growing]))
            for at, token in zip(growing, outputs.tokens, strict=True):
                texts[at].append(int(token))
                fresh[at] = [int(token)]
            yield texts
        for sequence in sequences:
            self._direct.close(sequence)


def _sampled(batch: Batch, seeds: U64) -> Batch:
    """The batch with tokens drawn from the model's own distribution."""
    sampling = replace(
        batch.sampling,
        temperature=np.ones(len(seeds), np.float32),
        seed=seeds,
        position=batch.contexts,
    )
    return replace(batch, sampling=sampling)
