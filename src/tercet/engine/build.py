"""From an opened model to an engine that runs plans."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS
from tercet.base.model import ModelShape
from tercet.devices.contract import F32, Device
from tercet.devices.cost.device import COST_BLOCK_SHAPE
from tercet.engine.engine import Engine
from tercet.engine.memory import AddressRange, block_bytes
from tercet.program.program import Program


class Model(Protocol):
    """What an engine needs of `models.opened.OpenedModel`."""

    @property
    def shape(self) -> ModelShape: ...

    @property
    def program(self) -> Program: ...

    def weights(self) -> Mapping[str, F32]:
        """By the names that the program gives them."""
        ...


def kv_block_bytes(shape: ModelShape, device: str) -> int:
    """Size of a KV block of this model on the device `cpu` or `cost`: whoever makes arenas needs
    it, and has neither device nor weights.
    """
    if device == "cost":
        return block_bytes(COST_BLOCK_SHAPE)
    return 4 * BLOCK_TOKENS * shape.kv_values_per_token


def kv_block_shape(shape: ModelShape, device: str) -> tuple[int, ...]:
    """Shape of that block: layers, keys and values, heads, tokens, numbers of a head."""
    if device == "cost":
        return COST_BLOCK_SHAPE
    return (shape.num_layers, 2, shape.num_kv_heads, BLOCK_TOKENS, shape.head_dim)


def build_engine(
    model: Model,
    *,
    device: Device,
    memory: AddressRange,
    max_slots: int,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Engine:
    """An engine with the model compiled and the memory bound, ready for `measure` and plans."""
    executable = device.compile(model.program, model.weights())
    must(
        executable.block_shape == memory.block_shape,
        f"blocks of {memory.block_shape} for a device that wants {executable.block_shape}",
    )
    executable.bind(memory)
    return Engine(executable, shape=model.shape, memory=memory, max_slots=max_slots, clock=clock)
