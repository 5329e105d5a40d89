"""KV memory as flat arrays, and the facts of the step that is running."""

from collections.abc import Mapping

import numpy as np

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.devices.contract import F32, U64, KvMemory
from tercet.devices.reference.step import KvLayout, Step


class State:
    """What kernels read at run time: changed between steps, never within one.

    lines  [blocks x layers x 2 x heads, BLOCK_TOKENS x head_dim]
    cells  [blocks x layers x 2 x heads x BLOCK_TOKENS, head_dim]
    """

    step: Step
    blocks: F32
    lines: F32
    cells: F32
    clock: U64 | None

    def __init__(self, layout: KvLayout, layers: Mapping[str, int]) -> None:
        self._layout = layout
        self._layers = layers

    def bind(self, kv: KvMemory) -> None:
        """Read and write this memory from now on."""
        blocks = kv.blocks
        must(
            blocks.dtype == np.float32
            and blocks.shape[1:] == self._layout.block_shape
            and blocks.flags.c_contiguous,
            f"KV memory is {blocks.dtype}{blocks.shape}, expected float32 of blocks "
            f"{self._layout.block_shape}, contiguous",
        )
        self.blocks = blocks
        self.clock = kv.clock()
        self.lines = blocks.reshape(-1, BLOCK_TOKENS * self._layout.head_dim)
        self.cells = blocks.reshape(-1, self._layout.head_dim)

    def begin(self, step: Step) -> None:
        """Take up a step; blocks that it begins are zero beyond its rows.

        Attention multiplies masked values by zero, so what an earlier owner left there must be
        finite: a job with broken numbers hurts only itself.
        """
        self.step = step
        if len(step.fresh):
            self.blocks[step.fresh] = 0.0

    def signal(self) -> None:
        """What was appended so far is whole."""
        if self.clock is not None:
            self.clock += np.uint64(1)

    def shift(self, name: str) -> int:
        """Lines from layer 0 of a block to the layer of this state."""
        return self._layers[name] * self._layout.lines_per_layer
