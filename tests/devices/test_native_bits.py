"""The kernels' results, bit by bit, as they were when `ARITHMETIC` was last raised.

Keys and values outlive the process that computed them, on disks and on other hosts, and count as
equal to what is computed today as long as `numerics_id` is the same. So a kernel that gives other
bits has to raise `ARITHMETIC` of `devices/cpu/device.py`, and record its bits here under the new
number. Bits of instruction sets that a machine does not have are not compared there.
"""

import hashlib
from functools import cache

import numpy as np
import pytest
from native_models import ISAS, MADE, SHAPES, Values, arranged, shape_of, stored

from tercet.base.model import ModelShape
from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import ARITHMETIC, CpuDevice
from tercet.devices.cpu.native import native
from tercet.devices.cpu.packing import CpuPacker
from tercet.devices.direct import Direct, Sequence
from tercet.program.formats import Format
from tercet.program.packing import StoredWeight
from tercet.program.program import Program

RECORDED = {
    1: {
        "avx512_bf16": "52dd3106d6f83fd83fe1712df4f115e7",
        "avx512": "ed760e93b43c5aff196ca03a987f724e",
        "avx2": "f520176830060a8f8c48ca266a29cf85",
        "portable": "c0efce237f2a93454a8e0ad52c948842",
    },
}
"""Of each number: instruction set -> digest."""
WIDE = shape_of(
    hidden=576, num_heads=9, num_kv_heads=3, head_dim=64, ffn=1536, num_layers=1, vocab=300
)
CASES = [
    (SHAPES["llama"], Format.BF16, "bf16"),
    (SHAPES["llama"], Format.INT8, "int8"),
    (SHAPES["untied"], Format.Q4_1, "int8"),
    (SHAPES["qwen2"], Format.Q8_0, "bf16"),
    (SHAPES["qwen3"], Format.INT8, "bf16"),
    (SHAPES["odd"], Format.BF16, "int8"),
    *((WIDE, form, "bf16") for form in MADE),
]


class Spread(Values):
    """Weights that no library's chance can change: hashes of their names."""

    def read(self, name: str) -> np.ndarray:
        shape = self._shapes[name]
        values = spread(name, int(np.prod(shape))).reshape(shape)
        if "norm" in name:
            return np.float32(1.0) + np.float32(0.125) * values
        return values * np.float32(2.0 / self.width(name) ** 0.5)


def spread(name: str, count: int) -> np.ndarray:
    """Numbers of [-1, 1), all exact in float32."""
    drawn = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), "<u4")
    return (drawn >> 8).astype(np.float32) * np.float32(2**-23) - np.float32(1.0)


@cache
def made(shape: ModelShape, form: Format) -> tuple[Program, dict[str, StoredWeight]]:
    """A program and its weights, packed for all instruction sets alike."""
    program = arranged(shape, form)
    return program, stored(program, CpuPacker(native()), Spread(program))


def bits_of(isa: str) -> str:
    """A digest of logits and of all that the cache holds, over prefills and decodes."""
    digest = hashlib.sha256()
    for shape, form, kv in CASES:
        options = CompileOptions(kv_dtype=kv, threads=2)
        executable = CpuDevice(isa).compile(*made(shape, form), options)
        direct, sequence, vocab = Direct(executable, 16), Sequence(), shape.vocab
        ids = ((spread("ids", 174) + 1) * (vocab / 2)).astype(int).tolist()
        for begin, end in ((0, 130), (130, 170), (170, 171), (171, 174)):
            batch = direct.batch([(sequence, ids[begin:end])], every_row=True)
            digest.update(executable.logits(batch).tobytes())
        digest.update(direct.kv.blocks[sequence.blocks].tobytes())
    return digest.hexdigest()[:32]


@pytest.mark.parametrize("isa", ISAS)
def test_the_kernels_give_the_bits_of_their_arithmetic(isa: str) -> None:
    recorded = RECORDED[ARITHMETIC].get(isa)
    if recorded is None:
        pytest.skip(f"nobody has recorded the bits of {isa}")
    assert bits_of(isa) == recorded, "raise ARITHMETIC and record the new bits (see above)"


def test_the_number_is_part_of_what_keys_are_made_of() -> None:
    assert f"arithmetic {ARITHMETIC};" in CpuDevice(ISAS[-1]).numerics_id()
