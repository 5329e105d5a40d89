"""The operations of a step: each a name, inputs, outputs, attributes and a row group.

Attributes are a closed union of small records, one for each name, so that a device, the shape
inference and the costs each `match` over the same list. Shapes below leave out the row group g.
"""

from msgspec import Struct

from tercet.program.tensors import RowGroup


class Embed(Struct, frozen=True, tag=True):
    """ids[], W[V, D] -> x[D]: row `ids` of W."""


class Norm(Struct, frozen=True, tag=True):
    """x[..., D], w[D] -> x / sqrt(mean(x^2) + eps) * w over the last dimension.

    RMSNorm: Zhang and Sennrich 2019, section 4.
    """

    eps: float


class Linear(Struct, frozen=True, tag=True):
    """x[*K], W[*N, *K](, b[*N]) -> y[*N]: contracts the trailing dimensions of W with x.

    With `splits` the first dimension of N is cut into outputs of these sizes. A `gated` one holds
    two matrices by turns (`recipes.Interleave`): y[N / 2] is silu(the first's) * the second's, as
    `Glu` says.
    """

    bias: bool = False
    splits: tuple[int, ...] = ()
    gated: bool = False


class Angles(Struct, frozen=True, tag=True):
    """positions[] -> cs[2, d]: cosines and signed sines for `Rope`, once a step.

    Frequency i of d/2 is theta^(-2i/d) / divisors[i] (`divisors` empty: 1); both halves of a head
    share them (Su et al. 2021, section 3.4.2, with halves in place of neighbours).
    """

    head_dim: int
    theta: float
    divisors: tuple[float, ...] = ()


class Rope(Struct, frozen=True, tag=True):
    """cs[2, d], x1[H1, d], x2[H2, d], ... -> the same, rotated: x cs[0] + swap_halves(x) cs[1]."""


class Append(Struct, frozen=True, tag=True):
    """state, x1[H, d], x2[H, d], ... -> nothing: the rows' entries are in the state afterwards."""


class Signal(Struct, frozen=True, tag=True):
    """state -> nothing: tells who waits for it that layer `layer` (from 1) of the step is whole.

    Another process that sees the clock so far (`devices.contract.KvMemory`) sees what was appended.
    """

    layer: int


class Attend(Struct, frozen=True, tag=True):
    """q[H, d], state[2, KV, d] -> y[H, d]: softmax(scale q k) v over the row's sequence.

    Causal: a row sees keys up to its own position. H is a multiple of KV; consecutive query heads
    share a key head (grouped queries: Ainslie et al. 2023).
    """

    scale: float


class Glu(Struct, frozen=True, tag=True):
    """gate[F], up[F] -> silu(gate) * up (Shazeer 2020, SwiGLU)."""


class Add(Struct, frozen=True, tag=True):
    """x[...], y[...] -> x + y."""


class Rows(Struct, frozen=True, tag=True):
    """x[D] of group T -> x[D] of group R: the rows whose logits are wanted."""


class Sample(Struct, frozen=True, tag=True):
    """logits[V] -> tokens[]: drawn as the batch's sampling parameters say."""


Attributes = (
    Embed | Norm | Linear | Angles | Rope | Append | Signal | Attend | Glu | Add | Rows | Sample
)


class Operation(Struct, frozen=True, kw_only=True):
    """One operation over named tensors; its work grows with the rows of `group`."""

    attributes: Attributes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    group: RowGroup

    @property
    def name(self) -> str:
        return type(self.attributes).__name__.lower()
