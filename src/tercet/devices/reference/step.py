"""A batch made ready: rows in the device's order, addresses of KV, groups that attend together.

The device puts sequences with one row first, sorted by blocks, so that those of similar length
form groups of neighbouring rows; then the others, each alone. Nothing that an operation computes
depends on the order of rows; `logits_rows` follows it, so answers come in the batch's order.
"""

from dataclasses import dataclass

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, I64, Batch

GATHER_NUMBERS_MAX = 1 << 20
"""Keys and values (numbers) that one group gathers at most: they should stay in a core's cache.

Measured with 32 sequences of 300: 1 to 16 sequences at once take 67, 62, 59, 58, 58 ms a step.
"""
_PADDING_MAX = 1.25


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How a block's numbers lie: [layers, 2 (keys, values), heads, BLOCK_TOKENS, head_dim].

    Heads come before tokens, so that a head's keys of one block are one piece of memory, and a
    context is gathered as `lines` of BLOCK_TOKENS x head_dim numbers, ready for a product.
    """

    layers: int
    heads: int
    head_dim: int

    @property
    def block_shape(self) -> tuple[int, ...]:
        return (self.layers, 2, self.heads, BLOCK_TOKENS, self.head_dim)

    @property
    def lines_per_layer(self) -> int:
        return 2 * self.heads

    @property
    def lines_per_block(self) -> int:
        return self.layers * self.lines_per_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Attending:
    """Neighbouring rows that attend at once: sequences of one row each, or one with many."""

    rows: slice
    sequences: int
    context: int
    """Padded (a multiple of BLOCK_TOKENS) tokens gathered for each sequence."""
    lines: I64
    """[sequences, 2, heads, blocks] lines of layer 0."""
    mask: F32
    """[sequences, 1, 1, context] 0 for a token of the sequence, -inf for padding (one row each)."""
    first_position: int
    """Of the first row, where there is one sequence with many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What operations need to know of a batch; rows are in the device's order."""

    ids: I64
    positions: I64
    logits_rows: I64
    cells: I64
    """[T, 2 x heads] index of a row's key and value vectors of layer 0, counted in vectors."""
    fresh: I64
    """Blocks that this step begins and does not fill."""
    attending: list[Attending]


def prepare(batch: Batch, layout: KvLayout) -> Step:
    """The batch in the device's order. Contradictions in the batch stop the process."""
    ends = batch.row_ends.astype(np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    counts = ends - starts
    must(len(batch.ids) == len(batch.positions) == (ends[-1] if len(ends) else 0), "rows differ")
    table_starts = np.concatenate(([0], batch.table_ends[:-1].astype(np.int64)))
    num_blocks = -(-batch.contexts.astype(np.int64) // BLOCK_TOKENS)
    must(bool((table_starts + num_blocks <= batch.table_ends).all()), "a table is too short")
    # Key: many rows after one row, then by length; the sort is stable.
    order = np.lexsort((num_blocks, counts > 1))
    order = order[counts[order] > 0]
    source = np.concatenate(
        [np.arange(starts[one], ends[one]) for one in order] or [np.empty(0, np.int64)]
    ).astype(np.int64)
    sequence = np.repeat(order, counts[order])
    positions = batch.positions[source].astype(np.int64)
    blocks = batch.tables[table_starts[sequence] + positions // BLOCK_TOKENS].astype(np.int64)
    lines = blocks[:, None] * layout.lines_per_block + np.arange(layout.lines_per_layer)
    place_of = np.empty(len(source), np.int64)
    place_of[source] = np.arange(len(source))
    begins = (positions % BLOCK_TOKENS == 0) & (positions + BLOCK_TOKENS > batch.contexts[sequence])
    return Step(
        ids=batch.ids[source].astype(np.int64),
        positions=positions,
        logits_rows=place_of[batch.logits_rows],
        cells=lines * BLOCK_TOKENS + (positions % BLOCK_TOKENS)[:, None],
        fresh=blocks[begins],
        attending=_groups(batch, layout, order, num_blocks),
    )


def _groups(batch: Batch, layout: KvLayout, order: I64, num_blocks: I64) -> list[Attending]:
    """Cut the ordered sequences into groups; row numbers count on from group to group."""
    ends = batch.row_ends
    groups: list[Attending] = []
    row = at = 0
    per_block = layout.lines_per_layer * BLOCK_TOKENS * layout.head_dim
    while at < len(order):
        first = int(order[at])
        rows = int(ends[first] - (ends[first - 1] if first else 0))
        stop = at + 1
        if rows == 1:
            shortest = int(num_blocks[first])
            while stop < len(order):
                next_one = int(order[stop])
                longest = int(num_blocks[next_one])
                several = int(ends[next_one] - (ends[next_one - 1] if next_one else 0)) > 1
                together = (stop + 1 - at) * longest * per_block
                if (
                    several
                    or longest > _PADDING_MAX * shortest + 1
                    or together > GATHER_NUMBERS_MAX
                ):
                    break
                stop += 1
            rows = stop - at
        groups.append(_group(batch, layout, order[at:stop], slice(row, row + rows)))
        row += rows
        at = stop
    return groups


def _group(batch: Batch, layout: KvLayout, members: I64, rows: slice) -> Attending:
    contexts = batch.contexts[members].astype(np.int64)
    most = int(-(-contexts.max() // BLOCK_TOKENS))
    blocks = np.empty((len(members), most), np.int64)
    for line, (member, context) in enumerate(zip(members, contexts, strict=True)):
        start = int(batch.table_ends[member - 1]) if member else 0
        used = int(-(-context // BLOCK_TOKENS))
        blocks[line, :used] = batch.tables[start : start + used]
        # Padding repeats the sequence's own last block: masked, and nobody else's numbers.
        blocks[line, used:] = blocks[line, used - 1]
    lines = np.arange(layout.lines_per_layer).reshape(1, 2, layout.heads, 1)
    beyond = np.arange(most * BLOCK_TOKENS) >= contexts[:, None]
    mask = np.where(beyond, np.float32(-np.inf), np.float32(0.0))[:, None, None, :]
    first_row = int(batch.row_ends[members[0] - 1]) if members[0] else 0
    return Attending(
        rows=rows,
        sequences=len(members),
        context=most * BLOCK_TOKENS,
        lines=blocks[:, None, None, :] * layout.lines_per_block + lines,
        mask=mask,
        first_position=int(batch.positions[first_row]),
    )
