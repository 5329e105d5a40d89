"""Attention over paged keys and values: gather a context just before use, then two products.

Legend: S sequences of a group, N rows of a tile, C tokens of a context (padded), K key heads,
G query heads of a key head, D numbers of a head.
"""

import numpy as np

from tercet.devices.contract import F32, I64
from tercet.devices.reference.memory import Memory
from tercet.devices.reference.step import Attending, KvLayout

TILE_ROWS_MAX = 128
TILE_SCORES_MAX = 1 << 21
"""Scores (numbers) of one tile at most, unless a single row has more."""


class Attention:
    """Attends for any layer; holds the memory that a group works in, one step long."""

    def __init__(self, layout: KvLayout, num_heads: int, memory: Memory) -> None:
        self._layout = layout
        self._num_heads = num_heads
        self._grouped = num_heads // layout.heads
        self._memory = memory
        self._works: list[_One | _Many] = []

    def prepare(self, attending: list[Attending]) -> None:
        """Set up for a step: views over memory that all groups share, one after another."""
        sizes = (self._layout.heads, self._grouped, self._layout.head_dim)
        self._works = [
            (_One if _is_single(one) else _Many)(one, sizes, self._memory) for one in attending
        ]

    def run(self, q: F32, out: F32, *, lines: F32, shift: int, scale: np.float32) -> None:
        """Leave in `out` [T, H, D] the attention of q [T, H, D]; `shift` says which layer."""
        for work in self._works:
            work.gather(lines, shift)
            work.run(q, out, scale)


def _is_single(one: Attending) -> bool:
    num_rows: int = one.rows.stop - one.rows.start
    return num_rows == one.sequences


class _Context:
    """The gathered keys and values of a group."""

    def __init__(self, one: Attending, sizes: tuple[int, int, int], memory: Memory) -> None:
        heads, _, head_dim = sizes
        self.first = one.lines
        self.now: I64 = np.empty_like(one.lines)
        count = 2 * one.sequences * heads * one.context * head_dim
        flat = memory("context", count)
        self.flat = flat.reshape(*one.lines.shape, -1)
        both = flat.reshape(one.sequences, 2, heads, one.context, head_dim)
        self.keys = both[:, 0].swapaxes(-1, -2)
        self.values = both[:, 1]

    def gather(self, lines: F32, shift: int) -> None:
        np.add(self.first, shift, out=self.now)
        # "clip" writes straight into `out`; indices are within range by construction.
        lines.take(self.now, axis=0, out=self.flat, mode="clip")


class _One:
    """Sequences of one row each."""

    def __init__(self, one: Attending, sizes: tuple[int, int, int], memory: Memory) -> None:
        heads, grouped, head_dim = sizes
        self._context = _Context(one, sizes, memory)
        self.gather = self._context.gather
        self._rows = one.rows
        self._mask = one.mask if one.mask.any() else None
        shape = (one.sequences, heads, grouped)
        size = one.sequences * heads * grouped
        self._q = memory("q", size * head_dim).reshape(*shape, head_dim)
        self._scores = memory("scores", size * one.context).reshape(*shape, one.context)
        self._edge = memory("edge", size).reshape(*shape, 1)
        self._mixed = memory("mixed", size * head_dim).reshape(*shape, head_dim)

    def run(self, q: F32, out: F32, scale: np.float32) -> None:
        shape = self._q.shape
        np.multiply(q[self._rows].reshape(shape), scale, out=self._q)
        np.matmul(self._q, self._context.keys, out=self._scores)
        if self._mask is not None:
            np.add(self._scores, self._mask, out=self._scores)
        _softmax_numerators(self._scores, self._edge)
        np.matmul(self._scores, self._context.values, out=self._mixed)
        target = out[self._rows]
        np.divide(self._mixed, self._edge, out=target.reshape(shape))


class _Many:
    """One sequence with many rows: tiles of queries, each over the keys that it may see."""

    def __init__(self, one: Attending, sizes: tuple[int, int, int], memory: Memory) -> None:
        self._context = _Context(one, sizes, memory)
        self.gather = self._context.gather
        self._sizes = sizes
        self._memory = memory
        self._rows = one.rows
        self._first_position = one.first_position
        heads, grouped, _ = sizes
        tile = TILE_SCORES_MAX // (heads * grouped * one.context)
        self._tile = max(1, min(TILE_ROWS_MAX, tile))
        self._later = np.triu(np.full((self._tile, self._tile), -np.inf, np.float32), 1)

    def run(self, q: F32, out: F32, scale: np.float32) -> None:
        first = self._rows.start
        for start in range(first, self._rows.stop, self._tile):
            rows = slice(start, min(start + self._tile, self._rows.stop))
            self._run_tile(q[rows], out[rows], scale, self._first_position + rows.stop - first)

    def _run_tile(self, q: F32, out: F32, scale: np.float32, seen: int) -> None:
        """A tile whose last row sees `seen` keys."""
        heads, grouped, head_dim = self._sizes
        num_rows = len(q)
        lines = grouped * num_rows
        q_tile = self._memory("q", heads * lines * head_dim)
        q_split = q_tile.reshape(heads, grouped, num_rows, head_dim)
        np.multiply(
            q.reshape(num_rows, heads, grouped, head_dim).transpose(1, 2, 0, 3), scale, out=q_split
        )
        scores = self._memory("scores", heads * lines * seen).reshape(heads, lines, seen)
        np.matmul(
            q_tile.reshape(heads, lines, head_dim), self._context.keys[0, :, :, :seen], out=scores
        )
        last = scores.reshape(heads, grouped, num_rows, seen)[..., seen - num_rows :]
        last += self._later[:num_rows, :num_rows]
        edge = self._memory("edge", heads * lines).reshape(heads, lines, 1)
        _softmax_numerators(scores, edge)
        mixed = self._memory("mixed", heads * lines * head_dim).reshape(heads, lines, head_dim)
        np.matmul(scores, self._context.values[0, :, :seen], out=mixed)
        mixed /= edge
        np.copyto(
            out.reshape(num_rows, heads, grouped, head_dim),
            mixed.reshape(heads, grouped, num_rows, head_dim).transpose(2, 0, 1, 3),
        )


def _softmax_numerators(scores: F32, edge: F32) -> None:
    """Scores become exp(score - largest), `edge` [..., 1] their sums."""
    np.maximum.reduce(scores, axis=-1, keepdims=True, out=edge)
    np.subtract(scores, edge, out=scores)
    np.exp(scores, out=scores)
    np.add.reduce(scores, axis=-1, keepdims=True, out=edge)
