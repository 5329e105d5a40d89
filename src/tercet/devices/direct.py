"""Runs token sequences on an executable without an engine: for tests, comparisons, benchmarks.

Holds KV memory of its own and hands out its blocks in a shuffled order, as a busy pool would.
Nothing is scheduled or shared.
"""

from collections.abc import Sequence as Listing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import U64, Batch, Executable, Outputs, Sampling


@dataclass(slots=True)
class Sequence:
    """Tokens that have been computed, and where their KV is."""

    length: int = 0
    blocks: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ArrayKv:
    """KV memory that is one array (`devices.contract.KvMemory`)."""

    blocks: NDArray[Any]
    signals: U64 | None = None

    def clock(self) -> U64 | None:
        return self.signals


class Direct:
    """An executable bound to KV memory of `num_blocks` blocks."""

    def __init__(self, executable: Executable, num_blocks: int) -> None:
        self._executable = executable
        order = np.random.default_rng(num_blocks).permutation(num_blocks)
        self._free = [int(block) for block in order]
        # Not a number (in bytes, of bfloat16): whoever reads what was never written is found out.
        dtype = np.dtype(executable.kv_dtype)
        blank = np.nan if dtype.kind == "f" else 255
        self.kv = ArrayKv(np.full((num_blocks, *executable.block_shape), blank, dtype))
        executable.bind(self.kv)

    def run(self, work: Listing[tuple[Sequence, Listing[int]]]) -> Outputs:
        """Compute these tokens after what each sequence has; greedy tokens of their last rows."""
        return self._executable.run(self.batch(work))

    def close(self, sequence: Sequence) -> None:
        """Give back the sequence's blocks; it begins anew."""
        self._free += sequence.blocks
        sequence.blocks, sequence.length = [], 0

    def batch(
        self, work: Listing[tuple[Sequence, Listing[int]]], *, every_row: bool = False
    ) -> Batch:
        """The step that appends these tokens; logits of all rows or of each sequence's last."""
        positions: list[int] = []
        tables: list[int] = []
        table_ends: list[int] = []
        for sequence, tokens in work:
            positions += range(sequence.length, sequence.length + len(tokens))
            sequence.length += len(tokens)
            while len(sequence.blocks) * BLOCK_TOKENS < sequence.length:
                must(self._free, "the sequences outgrow the KV memory")
                sequence.blocks.append(self._free.pop())
            tables += sequence.blocks
            table_ends.append(len(tables))
        ids = [token for _, tokens in work for token in tokens]
        row_ends = np.cumsum([len(tokens) for _, tokens in work], dtype=np.int32)
        wanted = np.arange(len(ids), dtype=np.int32) if every_row else row_ends - 1
        return Batch(
            ids=np.array(ids, np.int32),
            positions=np.array(positions, np.int32),
            row_ends=row_ends,
            contexts=np.array([sequence.length for sequence, _ in work], np.int32),
            tables=np.array(tables, np.int32),
            table_ends=np.array(table_ends, np.int32),
            logits_rows=wanted,
            sampling=greedy(len(wanted)),
            scored_ids=np.full(len(wanted), -1, np.int32),
        )


def greedy(num_rows: int) -> Sampling:
    """The best token of each row, nothing adjusted, no log-probabilities."""
    zeros, ones = np.zeros(num_rows, np.float32), np.ones(num_rows, np.float32)
    counts, none = np.zeros(num_rows, np.int32), np.empty(0, np.int32)
    return Sampling(
        temperature=zeros,
        top_k=counts,
        top_p=ones,
        min_p=zeros,
        seed=np.zeros(num_rows, np.uint64),
        choice=counts,
        position=counts,
        repetition=ones,
        presence=zeros,
        frequency=zeros,
        history_ids=none,
        history_counts=none,
        history_ends=counts,
        bias_ids=none,
        bias_values=np.empty(0, np.float32),
        bias_ends=counts,
        num_logprobs=np.full(num_rows, -1, np.int32),
    )
