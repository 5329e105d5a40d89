"""What an engine asks of a device: compile once, then run batches.

A device neither owns KV memory nor knows tasks. The engine gives it an address of the mapped
arenas and, for each step, a `Batch`: flat arrays over the rows and sequences of the step.

Legend: T rows of the step, S sequences (slots) of the step, R rows whose logits are wanted,
B entries of all block tables together.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tercet.program.packing import Packer, StoredWeight
from tercet.program.program import Program

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class Sampling(Struct, frozen=True, kw_only=True):
    """How each of R logits rows becomes a token; parallel arrays of R entries.

    Penalties read token history as CSR: `history_ids[history_ends[r-1]:history_ends[r]]` with the
    count of each id in prompt+output (`history_in_prompt`: it occurs in the prompt) and in the
    output alone (`history_counts`). Rows with neutral penalties have an empty range. Biases are
    CSR likewise; a token banned by `min_tokens` is a bias of -inf.
    """

    temperature: F32
    top_k: I32
    top_p: F32
    min_p: F32
    seed: U64
    choice: I32
    position: I32
    """Index in the whole sequence of the token to be drawn: with seed and choice the noise key."""
    repetition: F32
    presence: F32
    frequency: F32
    history_ids: I32
    history_counts: I32
    history_ends: I32
    bias_ids: I32
    bias_values: F32
    bias_ends: I32
    num_logprobs: I32
    """-1: none; k: the chosen token's and the k best."""


class Batch(Struct, frozen=True, kw_only=True):
    """One step over S sequences. Rows of a sequence are consecutive, in order of position."""

    ids: I32
    """[T] tokens to compute."""
    positions: I32
    """[T] their positions in their sequences."""
    row_ends: I32
    """[S] rows[s] = row_ends[s-1] : row_ends[s]."""
    contexts: I32
    """[S] tokens of the sequence after this step: what the last row attends over."""
    tables: I32
    """[B] block ids over all mapped arenas, the sequences' tables one after another."""
    table_ends: I32
    """[S]"""
    logits_rows: I32
    """[R] indices into T, ascending."""
    sampling: Sampling
    """For the R rows; a row that is wanted only for prompt logprobs is drawn and ignored."""
    scored_ids: I32
    """[R] a known next token whose log-probability is wanted, or -1 (prompt logprobs)."""
    made_up: "MadeUp | None" = None
    """For devices that compute nothing (`cost`)."""


class MadeUp(Struct, frozen=True, kw_only=True):
    """What a device without weights needs to invent a token, parallel to the R rows."""

    vocab: int
    end_ids: tuple[int, ...]
    end_position: I32
    """[R] position at which to draw an end id; -1: never."""


class Outputs(Struct, kw_only=True):
    """What a step gave, R entries each; arrays are the caller's to keep."""

    tokens: I32
    logprobs: F32
    """[R] log-probability of the drawn token under the raw distribution (0 where not asked)."""
    ranks: I32
    """[R] its rank, 1 = most probable (0 where not asked)."""
    top_ids: I32
    """[R, K] the K best tokens, K = largest `num_logprobs` (0 columns if nobody asked)."""
    top_logprobs: F32
    """[R, K]"""
    scored_logprobs: F32
    """[R] of `scored_ids` (0 where -1)."""
    scored_ranks: I32
    """[R]"""
    margins: F32
    """[R] difference of the two best scores that were compared (near-ties; inf if unknown)."""
    duration_ns: int = 0
    """Time that the step took, or would take (`cost`)."""
    extra: dict[str, Any] = field(default_factory=dict)


KvDtype = Literal["auto", "float32", "bf16", "int8"]
"""How keys and values may be kept; `auto` is the device's own choice."""


class CompileOptions(Struct, frozen=True, kw_only=True):
    """What a person may choose of an executable besides the program."""

    kv_dtype: KvDtype = "auto"
    threads: int | None = None
    """Threads that a step may use; None: the device's choice."""


class KvForm(Struct, frozen=True):
    """How keys and values of a program are kept."""

    dtype: str
    """`bf16`, `int8`, `float32`, or `none`."""
    block_bytes: int
    """Of BLOCK_TOKENS tokens, all layers."""


class KvMemory(Protocol):
    """Mapped arenas as one row of blocks: block id -> address, by plain arithmetic."""

    @property
    def blocks(self) -> Any:
        """[num blocks over all arenas, *block shape] in the executable's `kv_dtype`."""
        ...

    def clock(self) -> U64 | None:
        """[1] where an executable counts the program's signals, one each as it is passed; None:
        nobody looks.
        """
        ...


class Executable(Protocol):
    """A compiled program with its weights."""

    block_shape: tuple[int, ...]
    """Shape of one KV block (BLOCK_TOKENS tokens, all layers), element type `kv_dtype`."""
    kv_dtype: Any
    """A NumPy type; uint8 where the layout of a block is the device's own business."""

    def bind(self, kv: KvMemory) -> None:
        """Use this KV memory from now on."""
        ...

    def run(self, batch: Batch) -> Outputs:
        """Compute one step: append the rows' KV, attend, return a token for each logits row."""
        ...


class Device(Protocol):
    """Something that compiles programs."""

    name: str

    def numerics_id(self) -> str:
        """What results depend on besides weights: kind, library, instruction set, dtype (I3)."""
        ...

    def packer(self) -> Packer:
        """How this device wants its weights stored: a model image is made with it."""
        ...

    def check(self, options: CompileOptions) -> None:
        """`Invalid` says which of the options this device does not serve."""
        ...

    def kv_form(self, program: Program, options: CompileOptions) -> KvForm:
        """How an executable of the program would keep keys and values."""
        ...

    def compile(
        self,
        program: Program,
        weights: Mapping[str, StoredWeight],
        options: CompileOptions = CompileOptions(),  # noqa: B008  frozen
    ) -> Executable:
        """The program ready to run over these weights, as `packer` stored them, by the names that
        it gives them. `Invalid` as `check` says.
        """
        ...
