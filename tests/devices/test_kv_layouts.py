"""Layouts as data have the sizes that the native device's blocks have."""

import pytest

from tercet.devices.cpu.native import native
from tercet.messages.kv import KvLayout
from tercet.transfer.layouts import block_bytes_of


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", "BF16"), ("int8", "INT8")])
@pytest.mark.parametrize(("layers", "heads", "dim"), [(30, 3, 64), (2, 2, 20), (1, 1, 128)])
def test_blocks_are_as_large_as_the_native_device_makes_them(
    dtype: str, kind: str, layers: int, heads: int, dim: int
) -> None:
    module = native()
    if module is None:
        pytest.skip("the native device is not built")
    layout = KvLayout(
        dtype=dtype, block_tokens=16, layers=layers, kv_heads=heads, head_dim=dim, block_bytes=0
    )
    expected = module.kv_block_bytes(getattr(module.KvType, kind), layers, heads, dim)
    assert block_bytes_of(layout) == expected
