"""The native CPU device and its executables."""

import os
import time
from collections.abc import Mapping

import numpy as np

from tercet.base.errors import Invalid, must
from tercet.devices.contract import F32, Batch, CompileOptions, KvForm, KvMemory, Outputs
from tercet.devices.cpu.lower import Lowering
from tercet.devices.cpu.native import MISSING, chosen_isa, native
from tercet.devices.cpu.packing import LAYOUT, CpuPacker
from tercet.program.operations import Attend
from tercet.program.packing import StoredWeight
from tercet.program.program import Program

ARITHMETIC = 1
"""Raised whenever a kernel gives other bits for the same weights and tokens, or keeps keys and
values otherwise: what was computed before lies on disks, and at hosts that run another version, and
is never mixed with what is computed now. `tests/devices/test_native_bits.py` holds the bits.
"""
SPIN_NS = 400_000
"""A thread that waits for work looks for it so long before it sleeps: longer than what lies between
two steps of a busy engine. Waking it costs as much as a tenth of a step of a small model.
"""
_HEAD_DIM_MAX = 1024
"""kMaxHeadDim of native/attention.h."""
_KV_TYPES = {"auto": "BF16", "bf16": "BF16", "int8": "INT8"}


class CpuDevice:
    """C++ kernels of an instruction set: by default of the best that the machine has."""

    name = "cpu"

    def __init__(self, isa: str | None = None) -> None:
        module = native()
        if module is None:
            raise Invalid(f"{MISSING}.", code="device_not_served", parameter="device")
        self._native = module
        self._isa = isa or chosen_isa()

    def numerics_id(self) -> str:
        """What results depend on besides weights."""
        return f"cpu; {LAYOUT}; arithmetic {ARITHMETIC}; {self._isa}"

    def packer(self) -> CpuPacker:
        """Panels, for all instruction sets alike."""
        return CpuPacker(self._native)

    def check(self, options: CompileOptions) -> None:
        """`Invalid` unless keys and values are BF16 or INT8."""
        if options.kv_dtype not in _KV_TYPES:
            raise Invalid(
                f"kv_dtype is {options.kv_dtype!r}; the CPU device keeps keys and values in bf16 "
                "or int8.",
                parameter="kv_dtype",
            )

    def kv_form(self, program: Program, options: CompileOptions) -> KvForm:
        """BF16 unless INT8 is asked for."""
        self.check(options)
        name = _KV_TYPES[options.kv_dtype]
        kv_type = getattr(self._native.KvType, name)
        return KvForm(name.lower(), self._native.kv_block_bytes(kv_type, *_kv_shape(program)))

    def compile(
        self,
        program: Program,
        weights: Mapping[str, StoredWeight],
        options: CompileOptions = CompileOptions(),  # noqa: B008  frozen
    ) -> "CpuExecutable":
        """The program ready to run over these weights, which are read in place."""
        self.check(options)
        for name in program.weights:
            must(name in weights, f"weight {name} is missing")
        kv_type = getattr(self._native.KvType, _KV_TYPES[options.kv_dtype])
        layers, kv_heads, head_dim = _kv_shape(program)
        if head_dim > _HEAD_DIM_MAX:
            raise Invalid(
                f"heads of {head_dim} numbers are wider than the CPU device computes with, "
                f"{_HEAD_DIM_MAX} at most; use --device reference.",
                code="device_not_served",
                parameter="device",
            )
        cores = sorted(os.sched_getaffinity(0))
        threads = options.threads or len(cores)
        executable = self._native.Program(
            isa=self._isa,
            threads=threads,
            cpus=cores if threads == len(cores) else [],
            spin_ns=SPIN_NS,
            kv_type=kv_type,
            layers=layers,
            kv_heads=kv_heads,
            head_dim=head_dim,
            heads=_query_heads(program),
        )
        lowering = Lowering(program, weights, native=self._native, to=executable)
        lowering.run()
        executable.seal()
        block_bytes = self.kv_form(program, options).block_bytes
        return CpuExecutable(executable, block_bytes=block_bytes, kept=lowering.kept)


class CpuExecutable:
    """A program with its weights; not to be called by two threads at once."""

    kv_dtype = np.uint8

    def __init__(self, program: object, *, block_bytes: int, kept: list[object]) -> None:
        self._program = program
        self._kept = kept
        self._kv: KvMemory | None = None
        self.block_shape: tuple[int, ...] = (block_bytes,)

    def bind(self, kv: KvMemory) -> None:
        """Use this KV memory from now on: uint8 [blocks, block bytes], contiguous."""
        self._kv = kv
        blocks, clock = kv.blocks, kv.clock()
        self._program.bind(  # type: ignore[attr-defined]
            blocks.ctypes.data, len(blocks), 0 if clock is None else clock.ctypes.data
        )

    def run(self, batch: Batch) -> Outputs:
        """Compute one step. A block id or token out of range, and logits that are not finite, are
        errors: `ValueError` says which.
        """
        started = time.perf_counter_ns()
        results = self._program.run(  # type: ignore[attr-defined]
            *_arrays(batch), batch.sampling, batch.scored_ids
        )
        names = ("tokens", "logprobs", "ranks", "top_ids", "top_logprobs", "scored_logprobs")
        outputs = Outputs(**dict(zip((*names, "scored_ranks", "margins"), results, strict=True)))
        outputs.duration_ns = time.perf_counter_ns() - started
        return outputs

    def logits(self, batch: Batch) -> F32:
        """[R, V] of a step that is otherwise the same."""
        logits: F32 = self._program.logits(*_arrays(batch))  # type: ignore[attr-defined]
        return logits

    def watch(self, *, on: bool) -> None:
        """Time each group of operations from now on; what was timed before is forgotten."""
        self._program.watch(on)  # type: ignore[attr-defined]

    def timings(self) -> list[tuple[str, int, int]]:
        """(operations, nanoseconds, steps) of each region of the step, in order."""
        return list(self._program.timings())  # type: ignore[attr-defined]


def _arrays(batch: Batch) -> tuple[object, ...]:
    return (
        batch.ids,
        batch.positions,
        batch.row_ends,
        batch.contexts,
        batch.tables,
        batch.table_ends,
        batch.logits_rows,
    )


def _kv_shape(program: Program) -> tuple[int, int, int]:
    shapes = [state.dims for state in program.states]
    must(shapes and all(dims == shapes[0] for dims in shapes), f"states differ: {shapes}")
    _, heads, head_dim = shapes[0]
    return len(shapes), heads, head_dim


def _query_heads(program: Program) -> int:
    counts = {
        program.tensors[operation.inputs[0]].dims[0]
        for operation in program.operations
        if isinstance(operation.attributes, Attend)
    }
    must(len(counts) == 1, f"layers with different numbers of query heads: {counts}")
    return counts.pop()
