"""Formats of weights, rounding to them, and the rewrite that stores matrices in them."""

import gguf
import numpy as np
import pytest
from msgspec.structs import replace as changed
from small_programs import LLAMA

from tercet.base.errors import InvariantBroken
from tercet.models.families.build import build
from tercet.program.costs import cost
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.quantize import matrices, quantize
from tercet.program.recipes import (
    Ckpt,
    Concat,
    Quantized,
    Reshape,
    Slice,
    evaluate,
    format_of,
    quantized,
    sources,
)
from tercet.program.rounding import codes8, grid8, symmetric8, to_bfloat16

A = Ckpt("a", (2, 3))
INT8_A = Quantized(A, Format.INT8)


@pytest.mark.parametrize(
    ("form", "rows", "columns", "expected"),
    [
        (Format.F32, 3, 5, 60),
        (Format.BF16, 3, 5, 30),
        (Format.INT8, 3, 5, 15 + 12),
        (Format.Q4_0, 3, 64, 3 * 2 * 18),
        (Format.Q4_1, 3, 64, 3 * 2 * 20),
        (Format.Q4_K, 3, 512, 3 * 2 * 144),
        (Format.Q6_K, 3, 512, 3 * 2 * 210),
        (Format.Q8_0, 3, 64, 3 * 2 * 34),
    ],
)
def test_a_format_knows_its_size(form: Format, rows: int, columns: int, expected: int) -> None:
    assert form.stored_bytes(rows, columns) == expected
    assert form.is_blocks == (form.value.startswith("q"))


def test_a_row_that_is_no_whole_number_of_blocks_has_no_size() -> None:
    with pytest.raises(InvariantBroken):
        Format.Q4_1.stored_bytes(1, 33)


def test_bfloat16_rounds_to_nearest_even_and_keeps_what_is_no_number() -> None:
    ulp = 2.0**-7
    values = np.array([1, 1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, -0.0, 3e38], np.float32)
    expected = [1, 1, 1 + 2 * ulp, 1 + ulp, -0.0]
    np.testing.assert_array_equal(to_bfloat16(values)[:5], np.array(expected, np.float32))
    odd = to_bfloat16(np.array([np.inf, -np.inf, np.nan, 3.4028235e38], np.float32))
    assert odd[0] == np.inf
    assert odd[1] == -np.inf
    assert np.isnan(odd[2])
    assert odd[3] == np.inf


def test_integers_are_rounded_to_even_under_the_largest_magnitude_over_127() -> None:
    values = np.array([[254, -127, 1, 3, 5], [0, 0, 0, 0, 0]], np.float32)
    codes, scale = symmetric8(values)
    np.testing.assert_array_equal(scale, [[2], [0]])
    np.testing.assert_array_equal(codes, [[127, -64, 0, 2, 2], [0, 0, 0, 0, 0]])


def test_numbers_too_small_for_a_scale_are_zero() -> None:
    tiny = np.full((1, 3), np.float32(1e-45))
    codes, scale = symmetric8(tiny)
    assert scale[0, 0] == 0
    np.testing.assert_array_equal(codes, np.zeros((1, 3)))


def test_a_given_scale_clips() -> None:
    codes = codes8(np.array([[1000.0, -1000.0, 4.0]], np.float32), np.array([[2.0]], np.float32))
    np.testing.assert_array_equal(codes, [[127, -127, 2]])


@pytest.mark.parametrize("largest", [128, 127, 126, 101, 64])
def test_a_grid_is_found_again_whatever_its_largest_integer(largest: int) -> None:
    chance = np.random.default_rng(largest)
    codes = chance.integers(-largest + 1, largest, (5, 70)).astype(np.float32)
    codes[:, 3] = -largest
    scales = np.exp(chance.standard_normal((5, 1))).astype(np.float32)
    found, scale = grid8(codes * scales)
    np.testing.assert_allclose(found * scale, codes * scales, rtol=3e-7)
    if largest > 64:
        np.testing.assert_array_equal(found, codes)


def test_values_on_no_grid_are_rounded() -> None:
    values = np.random.default_rng(1).standard_normal((4, 50)).astype(np.float32)
    for ours, expected in zip(grid8(values), symmetric8(values), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    ("recipe", "form"),
    [
        (A, Format.F32),
        (INT8_A, Format.INT8),
        (Reshape(INT8_A, (3, 2)), Format.INT8),
        (Slice(INT8_A, 0, 1), Format.INT8),
        (Concat((INT8_A, Quantized(Ckpt("b", (1, 3)), Format.INT8))), Format.INT8),
    ],
)
def test_a_recipe_has_the_format_of_its_sources(recipe, form: Format) -> None:
    assert format_of(recipe) is form


def test_parts_in_different_formats_are_no_weight() -> None:
    with pytest.raises(InvariantBroken):
        format_of(Concat((A, INT8_A)))


def test_a_quantized_recipe_gives_the_numbers_that_are_stored() -> None:
    values = np.array([[1.0, 0.503, -0.2], [0.1, 0.0, 0.0]], np.float32)
    result = evaluate(Reshape(INT8_A, (2, 1, 3)), lambda _: values)
    steps = np.array([[127, 64, -25], [127, 0, 0]], np.float32)
    expected = steps * (np.array([[1.0], [0.1]], np.float32) / np.float32(127))
    np.testing.assert_array_equal(result.reshape(2, 3), expected)
    assert list(sources(INT8_A)) == [A]
    rounded = evaluate(Quantized(A, Format.BF16), lambda _: values)
    np.testing.assert_array_equal(rounded, to_bfloat16(values))


def test_values_that_lie_on_the_grid_already_pass() -> None:
    values = np.array([[1.0, 0.503, -0.2], [0.1, 0.0, 0.0]], np.float32)
    for form in Format:
        recipe = Concat((Quantized(A, form), Slice(Quantized(A, form), 0, 1)))
        ours = evaluate(recipe, lambda _: values, exact=("a",))
        np.testing.assert_array_equal(ours, values[[0, 1, 0]])


@pytest.mark.parametrize("form", [Format.Q4_1, Format.Q8_0])
def test_blocks_are_rounded_as_the_gguf_package_does(form: Format) -> None:
    values = np.random.default_rng(3).standard_normal((6, 96)).astype(np.float32)
    values[1] *= 1e-3
    values[2, :32] = 0
    values[3, 32:64] = 5
    values[4] = np.round(values[4] * 4)  # ties
    kind = gguf.GGMLQuantizationType[form.tensor_type]
    expected = gguf.dequantize(gguf.quantize(values, kind), kind)
    np.testing.assert_array_equal(quantized(values, form), expected)


@pytest.mark.parametrize("form", [Format.Q4_0, Format.Q4_K, Format.Q6_K])
def test_other_blocks_are_never_made(form: Format) -> None:
    with pytest.raises(InvariantBroken):
        quantized(np.ones((1, 256), np.float32), form)


def test_the_rewrite_changes_the_named_matrices_alone() -> None:
    program = build(LLAMA)
    formats = dict.fromkeys(matrices(program), Format.INT8)
    assert {"embedding", "head", "layers.1.o", "layers.0.down"} <= formats.keys()
    rewritten = quantize(program, formats)
    for name, recipe in rewritten.weights.items():
        assert format_of(recipe) is (Format.INT8 if name in formats else Format.F32)
        assert recipe.shape == program.weights[name].shape
    # Output channels are rows of the checkpoint's tensor, heads are not.
    assert rewritten.weights["layers.0.q"] == Reshape(
        Quantized(Ckpt("model.layers.0.self_attn.q_proj.weight", (24, 12)), Format.INT8), (4, 6, 12)
    )
    assert rewritten.operations == program.operations
    assert "int8[" not in str(program)
    assert quantize(program, {}) == program


@pytest.mark.parametrize(
    "formats",
    [
        {"nothing": Format.INT8},
        {"layers.0.norm1": Format.INT8},
        {"layers.0.q": Format.Q4_1},  # rows of 12
    ],
)
def test_what_cannot_be_stored_so_stops_the_process(formats) -> None:
    with pytest.raises(InvariantBroken):
        quantize(build(LLAMA), formats)


def test_a_weight_is_quantized_once() -> None:
    program = quantize(build(LLAMA), {"layers.0.q": Format.INT8})
    with pytest.raises(InvariantBroken):
        quantize(program, {"layers.0.q": Format.BF16})


def test_fuse_joins_equal_formats_only() -> None:
    formats = dict.fromkeys(("layers.0.q", "layers.0.k"), Format.INT8)
    fused = fuse(quantize(build(LLAMA), formats))
    assert format_of(fused.weights["layers.0.q_k"]) is Format.INT8
    assert format_of(fused.weights["layers.0.v"]) is Format.F32
    assert format_of(fused.weights["layers.1.q_k_v"]) is Format.F32


def test_costs_count_the_bytes_that_are_stored() -> None:
    shape = changed(LLAMA, hidden=64, num_heads=4, head_dim=16, ffn=128)
    program = build(shape)
    names = matrices(program)
    plain, small, tiny = (
        cost(quantize(program, dict.fromkeys(names, form)))
        for form in (Format.F32, Format.INT8, Format.Q4_0)
    )
    assert plain == cost(program)
    assert small.flops == plain.flops
    numbers = rows = 0
    for name, columns in names.items():
        if name != "embedding":
            size = int(np.prod(program.weights[name].shape))
            numbers, rows = numbers + size, rows + size // columns
    assert plain.bytes.one - small.bytes.one == 3 * numbers - 4 * rows
    assert plain.bytes.one - tiny.bytes.one == 4 * numbers - numbers // 32 * 18
    assert plain.bytes.t - small.bytes.t == 3 * 64 - 4  # a line of the embedding
