"""How a weight's numbers are stored, and with it how a product with it is computed.

A linear operation takes its input as its weight's format says (`devices.reference.products` is the
specification): F32 as it is; BF16 rounded to bfloat16; INT8 quantized for each row; the block
formats of GGUF quantized for each row and 32 neighbours.
"""

from enum import StrEnum

from tercet.base.errors import must

ACTIVATION_BLOCK = 32
"""Inputs of a product with a block format share a scale in groups of this many."""


class Format(StrEnum):
    """A storage format of a weight [N, K]: rows are output channels."""

    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"
    """Symmetric: one float32 scale for each row, integers from -127 to 127."""
    Q4_0 = "q4_0"
    """This and those below are block layouts of GGUF along K, exactly the file's numbers."""
    Q4_1 = "q4_1"
    Q4_K = "q4_k"
    Q6_K = "q6_k"
    Q8_0 = "q8_0"

    @property
    def block(self) -> int:
        """Numbers of a row that are stored together: K is a multiple of it."""
        return _BLOCKS[self][0]

    @property
    def is_blocks(self) -> bool:
        """True for the block layouts of GGUF."""
        return self.block > 1

    @property
    def tensor_type(self) -> str:
        """What a checkpoint calls the type of a tensor whose numbers lie on this format's grid."""
        return "I8" if self is Format.INT8 else self.value.upper()

    def stored_bytes(self, rows: int, columns: int) -> int:
        """Size of a weight [rows, columns], without padding."""
        block, size = _BLOCKS[self]
        must(columns % block == 0, f"{columns} columns in blocks of {block} ({self})")
        scales = 4 * rows if self is Format.INT8 else 0
        return rows * (columns // block) * size + scales


_BLOCKS: dict[Format, tuple[int, int]] = {
    Format.F32: (1, 4),
    Format.BF16: (1, 2),
    Format.INT8: (1, 1),
    Format.Q4_0: (32, 18),
    Format.Q4_1: (32, 20),
    Format.Q4_K: (256, 144),
    Format.Q6_K: (256, 210),
    Format.Q8_0: (32, 34),
}
"""Numbers in a block and its bytes (ggml-common.h of llama.cpp)."""
