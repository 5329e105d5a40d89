"""GGUF blocks in the native device's panels mean exactly what the `gguf` package says."""

import gguf
import numpy as np
import pytest

from tercet.devices.cpu.native import native
from tercet.devices.cpu.packing import native_format
from tercet.program.formats import Format

FORMATS = [form for form in Format if form.is_blocks]
ROWS, COLUMNS = 77, 1024


def random_blocks(form: Format) -> np.ndarray:
    """[ROWS, bytes of a row] any codes; scales and minima are numbers, zero and denormal too."""
    random = np.random.default_rng(3)
    size = form.stored_bytes(1, form.block)
    blocks = random.integers(0, 256, (ROWS * COLUMNS // form.block, size), np.uint8)
    starts = {Format.Q6_K: [208], Format.Q4_1: [0, 2], Format.Q4_K: [0, 2]}.get(form, [0])
    for start in starts:
        # The upper byte of a float16 without its highest exponent bit: below 2.
        blocks[:, start + 1] &= 0xBF
        blocks[::5, start + 1] &= 0x83
    blocks[::7, starts[0] : starts[0] + 2] = 0
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_packed_blocks_mean_the_files_numbers(form: Format) -> None:
    module = native()
    if module is None:
        pytest.skip("the native device is not built")
    rows = random_blocks(form)
    kind = native_format(module, form)
    packed = module.pack_blocks(kind, rows, COLUMNS)
    assert packed.size == module.packed_bytes(kind, ROWS, COLUMNS)
    assert packed.size == form.stored_bytes(96, COLUMNS)
    order = np.random.default_rng(4).permutation(ROWS).astype(np.int32)
    values = module.packed_rows(kind, packed, ROWS, COLUMNS, order)
    expected = gguf.dequantize(rows, gguf.GGMLQuantizationType[form.name])
    np.testing.assert_array_equal(values, expected[order])
