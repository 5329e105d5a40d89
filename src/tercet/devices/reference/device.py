"""The reference device: compiles a program to a list of NumPy calls and runs batches."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import threadpoolctl

from tercet.base.errors import Invalid, must
from tercet.devices.contract import F32, Batch, CompileOptions, KvForm, KvMemory, Outputs
from tercet.devices.reference.attention import Attention
from tercet.devices.reference.kernels import Kernel, Kernels
from tercet.devices.reference.memory import Memory
from tercet.devices.reference.packing import Float32Packer, float32_values
from tercet.devices.reference.products import products_of
from tercet.devices.reference.sampling import sample
from tercet.devices.reference.state import State
from tercet.devices.reference.step import KvLayout, prepare
from tercet.devices.reference.storage import Views, place
from tercet.program.operations import Attend, Embed, Linear, Operation, Sample
from tercet.program.packing import StoredWeight
from tercet.program.program import Program
from tercet.program.tensors import RowGroup

Watch = Callable[[Operation, F32], None]
"""Called before each linear of a step with the operation and its input [rows, K], which is to be
copied: it is written over by what follows."""

_FRAMES_MAX = 64
"""Compiled lists of calls that are kept, one for each number of rows."""


class ReferenceDevice:
    """NumPy in float32 on the CPU: the specification of every later device.

    It computes with quantized weights as `products` says, which is exact and slow.
    """

    name = "reference"

    def numerics_id(self) -> str:
        """What results depend on besides weights."""
        blas = ",".join(
            f"{one['internal_api']} {one['version']} {one.get('architecture', '')}".strip()
            for one in threadpoolctl.threadpool_info()
            if one["user_api"] == "blas"
        )
        return f"reference; numpy {np.__version__}; {blas}; float32"

    def packer(self) -> Float32Packer:
        """Every weight as float32, whatever its format means."""
        return Float32Packer()

    def check(self, options: CompileOptions) -> None:
        """`Invalid` unless keys and values are float32."""
        if options.kv_dtype not in {"auto", "float32"}:
            raise Invalid(
                f"kv_dtype is {options.kv_dtype!r}; the reference device keeps keys and values in "
                "float32 only.",
                parameter="kv_dtype",
            )

    def kv_form(self, program: Program, options: CompileOptions) -> KvForm:
        """Float32, whatever the program."""
        self.check(options)
        return KvForm("float32", 4 * math.prod(_layout(program).block_shape))

    def compile(
        self,
        program: Program,
        weights: Mapping[str, StoredWeight | F32],
        options: CompileOptions = CompileOptions(),  # noqa: B008  frozen
    ) -> "ReferenceExecutable":
        """The program ready to run over these weights, which are read in place (maps may be).

        A quantized weight is given as the numbers that its stored form means; integers and scales
        of INT8 are found again and held beside them.
        """
        self.check(options)
        arrays: dict[str, F32] = {}
        for name, recipe in program.weights.items():
            must(name in weights, f"weight {name} is missing")
            given = weights[name]
            array = float32_values(given) if isinstance(given, StoredWeight) else given
            must(
                array.shape == recipe.shape and array.dtype == np.float32,
                f"weight {name} is {array.dtype}{array.shape}, the program says {recipe.shape}",
            )
            arrays[name] = array
        return ReferenceExecutable(program, arrays)


class ReferenceExecutable:
    """A program with its weights; not to be called by two threads at once.

    `watch` sees the input of every linear (a calibration does); without one a step costs no more.
    """

    def __init__(
        self, program: Program, weights: Mapping[str, F32], watch: Watch | None = None
    ) -> None:
        self._program = program
        self._watch = watch
        self._weights = weights
        self._products = products_of(program, weights)
        self._storage = place(program)
        self._slots = Memory()
        self._layout = _layout(program)
        layers = {state.name: index for index, state in enumerate(program.states)}
        self._state = State(self._layout, layers)
        self._attention = Attention(self._layout, _query_heads(program), Memory())
        self._vocab = _vocab(program)
        self._frames: OrderedDict[tuple[int, int], _Frame] = OrderedDict()
        self._logits = next(
            operation.inputs[0]
            for operation in program.operations
            if isinstance(operation.attributes, Sample)
        )
        self.block_shape = self._layout.block_shape
        self.kv_dtype: Any = np.float32

    def bind(self, kv: KvMemory) -> None:
        """Use this KV memory from now on: float32 [blocks, *block_shape], contiguous."""
        self._state.bind(kv)

    def run(self, batch: Batch) -> Outputs:
        """Compute one step. A block id or token out of range stops the process.

        Raises `ValueError` where logits are not finite (the sampler says which row).
        """
        start_ns = time.perf_counter_ns()
        outputs = _outputs(batch, self.logits(batch))
        outputs.duration_ns = time.perf_counter_ns() - start_ns
        return outputs

    def logits(self, batch: Batch) -> F32:
        """[R, V] of a step that is otherwise the same; valid until the next step."""
        self._check(batch)
        step = prepare(batch, self._layout)
        rows = {
            RowGroup.STEP: len(step.ids),
            RowGroup.LOGITS: len(step.logits_rows),
            RowGroup.CONTEXT: 0,
        }
        self._state.begin(step)
        self._attention.prepare(step.attending)
        frame = self._frame(rows)
        with np.errstate(over="ignore"):
            for call in frame.calls:
                call()
        return frame.logits

    def _frame(self, rows: dict[RowGroup, int]) -> "_Frame":
        """The calls for these numbers of rows, made now or kept from before."""
        key = (rows[RowGroup.STEP], rows[RowGroup.LOGITS])
        frame = self._frames.get(key)
        if frame is None:
            frame = self._compile(rows)
            self._frames[key] = frame
            if len(self._frames) > _FRAMES_MAX:
                self._frames.popitem(last=False)
        self._frames.move_to_end(key)
        return frame

    def _compile(self, rows: dict[RowGroup, int]) -> "_Frame":
        moves = self._slots.moves
        views = Views(self._storage, rows, self._slots)
        kernels = Kernels(
            self._weights,
            views,
            products=self._products,
            state=self._state,
            attention=self._attention,
        )
        calls = [
            call
            for operation in self._program.operations
            if rows[operation.group]
            for call in [*self._watching(operation, views), *kernels.compile(operation)]
        ]
        if self._slots.moves != moves:
            # Frames made before hold the old, smaller memory: let it go.
            self._frames.clear()
        return _Frame(calls, views.of(self._logits))

    def _watching(self, operation: Operation, views: Views) -> list[Kernel]:
        """The call that shows a linear's input to who watches."""
        if self._watch is None or not isinstance(operation.attributes, Linear):
            return []
        return [partial(self._watch, operation, views.flat(operation.inputs[:1]))]

    def _check(self, batch: Batch) -> None:
        """What would silently read or write elsewhere."""
        if len(batch.ids):
            low, high = int(batch.ids.min()), int(batch.ids.max())
            must(low >= 0 and high < self._vocab, f"tokens {low}..{high} of {self._vocab}")
        if len(batch.tables):
            low, high = int(batch.tables.min()), int(batch.tables.max())
            num_blocks = len(self._state.blocks)
            must(low >= 0 and high < num_blocks, f"blocks {low}..{high} of {num_blocks}")


@dataclass(frozen=True, slots=True)
class _Frame:
    """The calls of a step and where its logits [R, V] are."""

    calls: list[Kernel]
    logits: F32


def _outputs(batch: Batch, logits: F32) -> Outputs:
    drawn = sample(logits, batch.sampling, batch.scored_ids)
    return Outputs(
        tokens=drawn.tokens,
        logprobs=drawn.logprobs,
        ranks=drawn.ranks,
        top_ids=drawn.top_ids,
        top_logprobs=drawn.top_logprobs,
        scored_logprobs=drawn.scored_logprobs,
        scored_ranks=drawn.scored_ranks,
        margins=drawn.margins,
    )


def _layout(program: Program) -> KvLayout:
    shapes = [state.dims for state in program.states]
    must(shapes and all(dims == shapes[0] for dims in shapes), f"states differ: {shapes}")
    _, heads, head_dim = shapes[0]
    return KvLayout(len(shapes), heads, head_dim)


def _query_heads(program: Program) -> int:
    counts = {
        program.tensors[operation.inputs[0]].dims[0]
        for operation in program.operations
        if isinstance(operation.attributes, Attend)
    }
    must(len(counts) == 1, f"layers with different numbers of query heads: {counts}")
    return counts.pop()


def _vocab(program: Program) -> int:
    return min(
        program.tensors[operation.inputs[1]].dims[0]
        for operation in program.operations
        if isinstance(operation.attributes, Embed)
    )
