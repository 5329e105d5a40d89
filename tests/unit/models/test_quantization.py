"""Which format each matrix gets, from what a person asks for and what a file holds."""

import pytest
from msgspec.structs import replace

from tercet.base.errors import Invalid
from tercet.models.families.build import build
from tercet.models.quantization import QUANTIZATIONS, choose_formats
from tercet.models.spec import parse_random
from tercet.program.formats import Format
from tercet.program.quantize import matrices, quantize

SHAPE = parse_random("random:llama?layers=1&hidden=64&ffn=96&heads=4&head_dim=16")[0]
TIED = replace(SHAPE, tied_embeddings=True)


def chosen(types: str | dict[str, str], quantization: str, shape=SHAPE, plain=Format.BF16):
    """The formats of a model whose tensors are stored so: one type, or by parts of names."""
    program = build(shape)

    def tensor_type(name: str) -> str:
        if isinstance(types, str):
            return types
        return next((one for part, one in types.items() if part in name), types["rest"])

    formats = choose_formats(program, quantization, tensor_type=tensor_type, plain=plain)
    assert formats.keys() == matrices(program).keys()
    quantize(program, formats)
    return formats


@pytest.mark.parametrize("plain", [Format.F32, Format.BF16])
@pytest.mark.parametrize("held", ["F32", "BF16", "Q4_1", "I8", "Q5_K"])
def test_none_is_the_devices_plain_format(held: str, plain: Format) -> None:
    assert set(chosen(held, "none", plain=plain).values()) == {plain}


@pytest.mark.parametrize("held", ["F32", "BF16", "Q4_1"])
@pytest.mark.parametrize("shape", [SHAPE, TIED])
def test_int8_without_calibration_is_blocks_of_8_bits(held: str, shape) -> None:
    assert set(chosen(held, "int8", shape).values()) == {Format.Q8_0}


@pytest.mark.parametrize("asked", ["auto", "int8"])
@pytest.mark.parametrize("shape", [SHAPE, TIED])
def test_a_calibrated_checkpoint_is_int8_but_for_what_is_sensitive(asked: str, shape) -> None:
    formats = chosen({"embed_tokens": "BF16", "lm_head": "BF16", "rest": "I8"}, asked, shape)
    blocks = {name for name, form in formats.items() if form is Format.Q8_0}
    assert blocks == {"embedding", "layers.0.down", *({"head"} & formats.keys())}
    assert set(formats.values()) == {Format.INT8, Format.Q8_0}


def test_int8_of_rows_that_no_block_fits_has_a_scale_for_each() -> None:
    formats = chosen("F32", "int8", replace(SHAPE, ffn=90))
    assert formats["layers.0.down"] is Format.INT8
    assert formats["layers.0.up"] is Format.Q8_0


@pytest.mark.parametrize(
    ("held", "form"),
    [
        ("F16", Format.BF16),
        ("Q4_0", Format.Q4_0),
        ("Q4_1", Format.Q4_1),
        ("Q8_0", Format.Q8_0),
        ("Q5_K", Format.Q8_0),
        ("IQ4_NL", Format.Q8_0),
        ("Q4_K", Format.INT8),  # rows of 64 and 96: no such file exists
    ],
)
def test_auto_is_what_the_file_holds(held: str, form: Format) -> None:
    assert set(chosen(held, "auto").values()) == {form}


def test_auto_rounds_nothing_for_a_device_that_computes_in_float32() -> None:
    assert set(chosen("Q4_1", "auto", plain=Format.F32).values()) == {Format.F32}


def test_auto_goes_matrix_by_matrix() -> None:
    formats = chosen({"embed_tokens": "Q8_0", "down": "Q6_K", "o_proj": "F16", "rest": "Q4_1"}, "auto", TIED)  # fmt: skip  # noqa: E501
    assert formats["embedding"] is Format.Q8_0
    assert formats["layers.0.q"] is Format.Q4_1
    assert formats["layers.0.o"] is Format.BF16
    assert formats["layers.0.down"] is Format.INT8  # 96 is no multiple of 256


@pytest.mark.parametrize("shape", [SHAPE, TIED])
def test_a_checkpoint_in_int8_has_its_tables_in_8_bits_too(shape) -> None:
    held = {"embed_tokens": "BF16", "lm_head": "BF16", "down": "BF16", "rest": "I8"}
    formats = chosen(held, "auto", shape)
    assert formats["embedding"] is Format.Q8_0
    assert formats.get("head", Format.Q8_0) is Format.Q8_0
    assert formats["layers.0.q"] is Format.INT8
    assert formats["layers.0.down"] is Format.BF16  # its maker left it so


def test_int4_keeps_the_files_blocks_and_makes_others() -> None:
    held = {"embed_tokens": "F16", "lm_head": "Q6_K", "q_proj": "Q4_0", "k_proj": "Q8_0", "rest": "BF16"}  # fmt: skip  # noqa: E501
    formats = chosen(held, "int4", replace(SHAPE, hidden=256, head_dim=64, ffn=90))
    assert formats["embedding"] is Format.Q8_0
    assert formats["head"] is Format.Q6_K
    assert formats["layers.0.q"] is Format.Q4_0
    assert formats["layers.0.k"] is Format.Q8_0
    assert formats["layers.0.up"] is Format.Q4_1
    assert formats["layers.0.down"] is Format.INT8  # rows of 90


def test_int4_of_a_file_without_4_bit_blocks() -> None:
    formats = chosen("Q8_0", "int4")
    assert formats["embedding"] is formats["head"] is Format.Q8_0
    assert formats["layers.0.q"] is Format.Q4_1


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(Invalid, match="quantization is 'int3', expected one of auto, none"):
        chosen("F32", "int3")
    assert QUANTIZATIONS[0] == "auto"
