"""The kernels' results, bit by bit, as they were when `ARITHMETIC` was last raised.

Keys and values outlive the process that computed them, on disks and on other hosts, and count as
equal to what is computed today as long as `numerics_id` is the same. So a kernel that gives other
bits has to raise `ARITHMETIC` of `devices/cpu/device.py`, and record its bits here under the new
number. Bits of instruction sets that a machine does not have are not compared there.
"""

import hashlib

import numpy as np
import pytest
from native_models import ISAS, SHAPES, Values, arranged, stored

from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import ARITHMETIC, CpuDevice
from tercet.devices.direct import Direct, Sequence
from tercet.program.formats import Format

RECORDED = {
    1: {
        "avx512_bf16": "f89faec29035cb0f3b9b241507c8a29b",
        "avx512": "e5fa7d289bdbc8536bd8e5703c216d0d",
        "avx2": "3e6253f6e4ca57119d2a72ce50353fdf",
        "portable": "0a5e44d6d63f2c54914fa9f09b1a9039",
    },
}
"""Of each number: instruction set -> digest."""
CASES = [
    ("llama", Format.BF16, "bf16"),
    ("llama", Format.INT8, "int8"),
    ("untied", Format.Q4_1, "int8"),
    ("qwen2", Format.Q8_0, "bf16"),
    ("qwen3", Format.INT8, "bf16"),
    ("odd", Format.BF16, "int8"),
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


def bits_of(isa: str) -> str:
    """A digest of logits and of all that the cache holds, over prefills and decodes."""
    digest = hashlib.sha256()
    for model, form, kv in CASES:
        device, program = CpuDevice(isa), arranged(SHAPES[model], form)
        weights = stored(program, device.packer(), Spread(program))
        executable = device.compile(program, weights, CompileOptions(kv_dtype=kv, threads=1))
        direct, sequence, vocab = Direct(executable, 16), Sequence(), SHAPES[model].vocab
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
