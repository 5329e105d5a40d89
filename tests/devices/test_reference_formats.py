"""Products of the reference device with quantized weights, against their formulas."""

import numpy as np
import pytest
import single_operations
from msgspec.structs import replace
from single_operations import operation, table

from tercet.devices.direct import Direct, Sequence
from tercet.devices.reference import ReferenceDevice
from tercet.program.formats import Format
from tercet.program.operations import Linear
from tercet.program.program import assemble
from tercet.program.quantize import quantize
from tercet.program.recipes import Quantized, quantized
from tercet.program.rounding import symmetric8, to_bfloat16
from tercet.program.tensors import Kind

each_number_of_rows = pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 37])


def run(x: np.ndarray, weight: np.ndarray, form: Format, rows: int) -> tuple[np.ndarray, ...]:
    """Result [rows, N] of a linear with a weight stored so, and the rows' inputs [rows, K]."""
    one = operation(Linear(), ("x", "w"), "y")
    outer = weight.shape[0]
    program, every = single_operations.program_of([one], {"x": x}, {"w": weight}, "y", outer)
    program = quantize(program, {"w": form})
    assert isinstance(program.weights["w"], Quantized)
    # Any float32 number will do for one that a block means.
    every["w"] = weight if form.is_blocks else quantized(weight, form)
    direct = Direct(ReferenceDevice().compile(program, every), rows // 16 + 2)
    ids = [int(token) for token in np.random.default_rng(rows).integers(0, 29, rows)]
    logits = direct._executable.logits(direct.batch([(Sequence(), ids)], every_row=True))
    return logits.copy(), x[ids].reshape(rows, -1)


@each_number_of_rows
@pytest.mark.parametrize("inner", [1, 7, 1024, 1025, 2500])
def test_int8_sums_integers_exactly(rows: int, inner: int) -> None:
    weight = np.random.default_rng(1).standard_normal((11, inner)).astype(np.float32)
    weight[3] = 0.0
    x = table("x", inner)
    x[5] = 0.0
    ours, values = run(x, weight, Format.INT8, rows)
    (xq, xs), (wq, ws) = symmetric8(values), symmetric8(weight)
    total = xq.astype(np.int64) @ wq.astype(np.int64).T
    exact = total.astype(np.float32) * (xs * ws.reshape(-1))
    # The scales are read back from values: at most the last place of a float32 differs.
    np.testing.assert_allclose(ours, exact, rtol=3e-7)
    assert not ours[:, 3].any()


def test_int8_takes_a_row_as_it_comes_in_any_company() -> None:
    weight = np.random.default_rng(1).standard_normal((11, 2500)).astype(np.float32)
    alone, values = run(table("x", 2500), weight, Format.INT8, 1)
    for rows in (2, 4, 37):
        ours, others = run(table("x", 2500), weight, Format.INT8, rows)
        for line, other in zip(ours, others, strict=True):
            if np.array_equal(other, values[0]):
                np.testing.assert_array_equal(line, alone[0])


@each_number_of_rows
def test_bfloat16_rounds_inputs_and_weights(rows: int) -> None:
    weight = np.random.default_rng(1).standard_normal((11, 70)).astype(np.float32)
    ours, values = run(table("x", 70), weight, Format.BF16, rows)
    exact = to_bfloat16(values).astype(float) @ to_bfloat16(weight).astype(float).T
    np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)
    assert np.abs(ours - values @ weight.T).max() > 1e-3


@each_number_of_rows
@pytest.mark.parametrize("form", [form for form in Format if form.is_blocks])
def test_block_formats_round_inputs_by_32(rows: int, form: Format) -> None:
    weight = np.random.default_rng(1).standard_normal((11, 512)).astype(np.float32)
    x = table("x", 512) * np.repeat(10.0 ** np.arange(-8, 8), 32).astype(np.float32)
    x[7, :32] = 0.0
    ours, values = run(x, weight, form, rows)
    codes, scale = symmetric8(values.reshape(rows, -1, 32))
    rounded = (codes.astype(float) * scale).reshape(rows, -1)
    exact = rounded @ weight.astype(float).T
    np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_a_lookup_gives_the_stored_numbers_of_a_tied_table() -> None:
    """The table that is both embedding and head is one weight, looked up and multiplied with."""
    x = table("x", 5)
    program, every = single_operations.program_of([], {"x": x}, {}, "x", 5)
    given = [
        replace(one, recipe=Quantized(one.recipe, Format.INT8))
        if one.name == "table.x" and one.recipe is not None
        else one
        for one in program.tensors.values()
        if one.kind is not Kind.VALUE
    ]
    program = assemble("probe", given, program.operations)
    every["table.x"] = quantized(x, Format.INT8)
    direct = Direct(ReferenceDevice().compile(program, every), 2)
    ids = [3, 0, 28]
    logits = direct._executable.logits(direct.batch([(Sequence(), ids)], every_row=True))
    np.testing.assert_array_equal(logits, quantized(x, Format.INT8)[ids])
