"""Tensors of a program: at most one symbolic dimension, the first, and it names a row group."""

from enum import StrEnum

from msgspec import Struct

from tercet.program.formats import Format
from tercet.program.recipes import Recipe, format_of


class RowGroup(StrEnum):
    """Which rows the first dimension of a tensor, or the work of an operation, counts."""

    STEP = "T"
    """Rows (tokens) of the step."""
    LOGITS = "R"
    """Rows whose logits are wanted."""
    CONTEXT = "C"
    """Tokens of all sequences after the step: what states hold."""


class Axis(StrEnum):
    """What a static dimension counts; a rewrite that shards divides axes by this name."""

    HIDDEN = "hidden"
    HEADS = "heads"
    KV_HEADS = "kv"
    HEAD = "head"
    """Within one head."""
    FFN = "ffn"
    VOCAB = "vocab"
    FUSED = "fused"
    """Several axes one after another; cannot be divided."""


class Kind(StrEnum):
    INPUT = "input"
    VALUE = "value"
    WEIGHT = "weight"
    STATE = "state"


class Dtype(StrEnum):
    F32 = "f32"
    I32 = "i32"

    @property
    def size_bytes(self) -> int:
        return 4


class Tensor(Struct, frozen=True, kw_only=True):
    """A name with a type: `dtype[group, *dims]`; a weight has no group but a recipe.

    A state's dims are what one token leaves: [number of tensors appended, *their dims].
    """

    name: str
    kind: Kind
    dims: tuple[int, ...]
    axes: tuple[Axis, ...]
    group: RowGroup | None = None
    dtype: Dtype = Dtype.F32
    recipe: Recipe | None = None

    @property
    def format(self) -> Format:
        """How a weight is stored; everything else is what it is."""
        return Format.F32 if self.recipe is None else format_of(self.recipe)

    def __str__(self) -> str:
        sizes = [] if self.group is None else [self.group.value]
        sizes += [str(dim) for dim in self.dims]
        stored = self.dtype.value if self.format is Format.F32 else self.format.value
        return f"{self.name}: {stored}[{', '.join(sizes)}]"
