"""An executable without weights whose logits depend on every token of a sequence, through its KV.

The fake beside the real device: whoever mixes up rows, positions, blocks or slots gets other
tokens from it. Each token writes its id into its cell of the cache; a row's logits are a hash of
all cells up to its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, U64, Batch, KvMemory, Outputs
from tercet.devices.noise import gumbel, mix64, noise_bits
from tercet.devices.reference.sampling import sample


class EchoExecutable:
    """Deterministic, exact in any company; logits look like those of a small model."""

    block_shape: tuple[int, ...] = (BLOCK_TOKENS,)
    kv_dtype: Any = np.float32

    def __init__(self, *, vocab: int) -> None:
        self._vocab = vocab
        self._blocks: F32 = np.zeros((0, BLOCK_TOKENS), np.float32)

    def bind(self, kv: KvMemory) -> None:
        self._blocks = kv.blocks

    def run(self, batch: Batch) -> Outputs:
        """Append, attend and draw, sequence by sequence."""
        keys = np.zeros(len(batch.ids), np.uint64)
        first = start = 0
        ends = zip(batch.row_ends, batch.table_ends, batch.contexts, strict=True)
        for row_end, table_end, context in ends:
            table = batch.tables[start:table_end]
            positions = batch.positions[first:row_end]
            must(len(positions) > 0 and positions[-1] == context - 1, "rows end before the context")
            cells = table[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS
            self._blocks[cells] = batch.ids[first:row_end]
            seen = self._blocks[table].reshape(-1)[:context].astype(np.uint64)
            keys[first:row_end] = _chain(seen)[positions]
            first, start = int(row_end), int(table_end)
        logits = _logits(keys[batch.logits_rows], self._vocab)
        rows = sample(logits, batch.sampling, batch.scored_ids)
        return Outputs(
            tokens=rows.tokens,
            logprobs=rows.logprobs,
            ranks=rows.ranks,
            top_ids=rows.top_ids,
            top_logprobs=rows.top_logprobs,
            scored_logprobs=rows.scored_logprobs,
            scored_ranks=rows.scored_ranks,
            margins=rows.margins,
        )


def echo_logits(tokens: Sequence[int], vocab: int) -> F32:
    """[n, V] the logits after each of a sequence's tokens."""
    return _logits(_chain(np.array(tokens, np.uint64)), vocab)


def _logits(keys: U64, vocab: int) -> F32:
    ids = np.arange(vocab, dtype=np.uint32)[None]
    return 2 * gumbel(noise_bits(keys[:, None], ids)).astype(np.float32)


def _chain(tokens: U64) -> U64:
    """[n] for each prefix a hash of its tokens in their order."""
    place = np.arange(len(tokens), dtype=np.uint64)
    hashed = mix64(tokens ^ (place << np.uint64(32)))
    chained: U64 = np.cumsum(hashed, dtype=np.uint64)
    return mix64(chained)
