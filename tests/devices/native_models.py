"""Small models compiled for the native device and for the reference device, of the same numbers."""

from functools import cache
from types import SimpleNamespace

import numpy as np

from tercet.base.model import ModelShape
from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import CpuDevice, CpuExecutable
from tercet.devices.cpu.native import native, usable_isas
from tercet.devices.cpu.packing import CpuPacker
from tercet.devices.reference import ReferenceDevice, ReferenceExecutable
from tercet.devices.reference.packing import Float32Packer
from tercet.models.families.build import build
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.packing import Packer, StoredWeight
from tercet.program.program import Program
from tercet.program.quantize import matrices, quantize
from tercet.program.recipes import format_of, sources

ISAS = usable_isas()
MADE = (Format.BF16, Format.INT8, Format.Q4_1, Format.Q8_0)
"""Formats that are made of float32 values."""


def shape_of(family: str = "llama", **changes: object) -> ModelShape:
    fields: dict[str, object] = {
        "family": family,
        "num_layers": 2,
        "hidden": 64,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 16,
        "ffn": 96,
        "vocab": 131,
        "context_max": 4096,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tied_embeddings": True,
    }
    return ModelShape(**(fields | changes))


SHAPES = {
    "llama": shape_of(),
    "untied": shape_of(tied_embeddings=False, num_kv_heads=6),
    "qwen2": shape_of("qwen2", attention_bias=True, head_dim=8),
    "qwen3": shape_of("qwen3", qk_norm=True, head_dim=32),
    "odd": shape_of(hidden=96, ffn=160, head_dim=24, num_heads=3, num_kv_heads=1, vocab=77),
}


class Values:
    """A checkpoint of chance (`program.packing.WeightSource`)."""

    def __init__(self, program: Program) -> None:
        self._shapes = {
            one.name: one.shape for recipe in program.weights.values() for one in sources(recipe)
        }

    def describe(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(dtype="F32", name=name)

    def read(self, name: str) -> np.ndarray:
        chance = np.random.default_rng(sum(map(ord, name)))
        values = chance.standard_normal(self._shapes[name]).astype(np.float32)
        if "norm" in name:
            return np.float32(1.0) + np.float32(0.1) * values
        return values * np.float32(0.5 if name.endswith("bias") else 2.0 / self.width(name) ** 0.5)

    def width(self, name: str) -> int:
        return self._shapes[name][-1]


def arranged(shape: ModelShape, form: Format) -> Program:
    plain = build(shape)
    formats = {
        name: form if columns % form.block == 0 else Format.INT8
        for name, columns in matrices(plain).items()
    }
    return CpuPacker(native()).arrange(fuse(quantize(plain, formats)))


def stored(
    program: Program, packer: Packer, source: Values | None = None
) -> dict[str, StoredWeight]:
    source, weights = source or Values(program), {}
    for name, recipe in program.weights.items():
        packed = packer.pack(recipe, source)
        assert packed.nbytes == packer.packed_bytes(recipe)
        room = np.zeros(packed.nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        data = room[start : start + packed.nbytes]
        data[:] = packed
        data.flags.writeable = False
        weights[name] = StoredWeight(data, recipe.shape, format_of(recipe))
    return weights


@cache
def native_model(
    model: str, form: Format, isa: str, kv: str = "bf16", threads: int = 2
) -> CpuExecutable:
    program = arranged(SHAPES[model], form)
    device = CpuDevice(isa)
    weights = stored(program, device.packer())
    return device.compile(program, weights, CompileOptions(kv_dtype=kv, threads=threads))


@cache
def reference_model(model: str, form: Format) -> ReferenceExecutable:
    program = arranged(SHAPES[model], form)
    return ReferenceDevice().compile(program, stored(program, Float32Packer()))
