"""What `--quantization` means for each matrix of a model.

none   every matrix in the device's plain format (BF16; float32 on the reference device)
int8   8 bits: INT8 where the checkpoint is calibrated for it, but for its sensitive matrices
       (embedding, head, what gated products go into); anything else in blocks of 32 (Q8_0), which
       lose next to nothing without calibration
int4   the file's own 4-bit blocks; else Q4_1, and Q8_0 for embedding and head
auto   what the file holds: blocks stay blocks, INT8 is `int8`, other quantized types become Q8_0,
       anything else is plain. A device that computes in float32 anyway gains nothing from
       rounding: there `auto` is `none`.

docs/quantization.md has what each choice costs in accuracy.
"""

from collections.abc import Callable

from tercet.base.errors import Invalid
from tercet.program.formats import Format
from tercet.program.operations import Embed, Glu, Linear
from tercet.program.program import Program
from tercet.program.quantize import matrices
from tercet.program.recipes import Recipe, sources
from tercet.program.tensors import Axis

QUANTIZATIONS = ("auto", "none", "int8", "int4")
_FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of tensors that nobody quantized."""
_OF_TYPE = {form.tensor_type: form for form in Format}
_FOUR_BITS = (Format.Q4_0, Format.Q4_1, Format.Q4_K)

TensorType = Callable[[str], str]
"""How the checkpoint stores a tensor (`TensorInfo.dtype`), by the tensor's name."""


def choose_formats(
    program: Program, quantization: str, *, tensor_type: TensorType, plain: Format
) -> dict[str, Format]:
    """The format of each matrix of the unfused program, for `program.quantize.quantize`.

    `plain` is the device's format for what is not quantized. `Invalid` for an unknown word.
    """
    if quantization not in QUANTIZATIONS:
        raise Invalid(
            f"quantization is {quantization!r}, expected one of {', '.join(QUANTIZATIONS)}.",
            parameter="quantization",
        )
    if quantization == "auto" and plain is Format.F32:
        quantization = "none"
    weights = program.weights
    held = {name: _held(weights[name], tensor_type) for name in matrices(program)}
    tables = _tables(program)
    sensitive = tables | _after_gates(program)
    in_int8 = Format.INT8.tensor_type in held.values()
    in_int4 = any(_OF_TYPE.get(one) in _FOUR_BITS for one in held.values())
    formats = {}
    for name, columns in matrices(program).items():
        calibrated = held[name] == Format.INT8.tensor_type
        if quantization == "none":
            formats[name] = plain
        elif quantization == "int8" or (
            quantization == "auto" and (calibrated or (in_int8 and name in tables))
        ):
            whole = calibrated and name not in sensitive
            formats[name] = Format.INT8 if whole else _fitting(Format.Q8_0, columns)
        elif quantization == "int4":
            own = _OF_TYPE.get(held[name], Format.F32)
            made = Format.Q8_0 if name in tables else Format.Q4_1
            formats[name] = _fitting(own if in_int4 and own.is_blocks else made, columns)
        elif held[name] in _FLOATS:
            formats[name] = plain
        else:
            formats[name] = _fitting(_OF_TYPE.get(held[name], Format.Q8_0), columns)
    return formats


def _held(recipe: Recipe, tensor_type: TensorType) -> str:
    """The type in which the checkpoint holds all of a weight; F32 where its parts differ."""
    types = {tensor_type(one.name) for one in sources(recipe)}
    return types.pop() if len(types) == 1 else Format.F32.tensor_type


def _tables(program: Program) -> frozenset[str]:
    """The weights with a row for each token: embedding and head."""
    looked_up = {one.inputs[1] for one in program.operations if isinstance(one.attributes, Embed)}
    heads = {name for name in matrices(program) if program.tensors[name].axes[:1] == (Axis.VOCAB,)}
    return frozenset(looked_up | heads)


def _after_gates(program: Program) -> frozenset[str]:
    """The weights that gated products go into: their inputs have the largest outliers, which no
    norm before them can absorb.
    """
    gated = {name for one in program.operations if isinstance(one.attributes, Glu)
             for name in one.outputs}  # fmt: skip
    linears = [one for one in program.operations if isinstance(one.attributes, Linear)]
    return frozenset(one.inputs[1] for one in linears if one.inputs[0] in gated)


def _fitting(form: Format, columns: int) -> Format:
    """The format, or INT8 where rows are no whole number of its blocks."""
    return form if columns % form.block == 0 else Format.INT8
