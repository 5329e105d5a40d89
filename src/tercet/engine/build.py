"""From an opened model to an engine that runs plans."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from tercet.base.errors import must
from tercet.base.model import ModelShape
from tercet.devices.contract import CompileOptions, Device, Executable
from tercet.engine.engine import Engine
from tercet.engine.memory import AddressRange, block_bytes, private_memory
from tercet.program.packing import StoredWeight
from tercet.program.program import Program
from tercet.program.signal import signal


class Model(Protocol):
    """What an engine needs of `models.opened.OpenedModel`."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def program(self) -> Program: ...

    def weights(self) -> Mapping[str, StoredWeight]:
        """By the names that the program gives them."""
        ...


def compile_model(
    model: Model,
    device: Device,
    options: CompileOptions = CompileOptions(),  # noqa: B008  frozen
) -> Executable:
    """The model ready to run on the device that its weights are stored for; it signals each layer,
    which costs a store.
    """
    return device.compile(signal(model.program), model.weights(), options)


def kv_block_bytes(executable: Executable) -> int:
    """Size of a KV block: whoever makes arenas needs it."""
    return block_bytes(executable.block_shape, executable.kv_dtype)


def kv_memory(executable: Executable, num_blocks: int, *, populate: bool = True) -> AddressRange:
    """Memory for so many blocks, for a process that shares with nobody. Without `populate` it is
    taken block by block, as they are first written to.
    """
    shape, dtype = executable.block_shape, executable.kv_dtype
    return private_memory(shape, num_blocks, dtype=dtype, populate=populate)


def build_engine(
    executable: Executable,
    *,
    shape: ModelShape,
    memory: AddressRange,
    max_slots: int,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Engine:
    """An engine over the executable with the memory bound, ready for `measure` and plans."""
    must(
        executable.block_shape == memory.block_shape
        and np.dtype(executable.kv_dtype) == memory.dtype,
        f"blocks of {memory.dtype}{memory.block_shape} for a device that wants "
        f"{np.dtype(executable.kv_dtype)}{executable.block_shape}",
    )
    executable.bind(memory)
    return Engine(executable, shape=shape, memory=memory, max_slots=max_slots, clock=clock)
