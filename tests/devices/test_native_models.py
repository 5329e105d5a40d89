"""Whole steps of the native device beside the reference device, with every instruction set."""

import numpy as np
import pytest
from msgspec.structs import replace
from native_models import ISAS, MADE, SHAPES, native_model, reference_model, shape_of, stored

from tercet.base.errors import Invalid
from tercet.devices.contract import CompileOptions
from tercet.devices.cpu.device import CpuDevice
from tercet.devices.cpu.native import native
from tercet.devices.cpu.packing import CpuPacker
from tercet.devices.direct import Direct, Sequence
from tercet.devices.reference import ReferenceDevice
from tercet.devices.reference.packing import Float32Packer
from tercet.models.families.build import build
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.quantize import matrices, quantize

LENGTHS = (1, 2, 17, 130)


def logits_of(executable, vocab):
    """Logits of every row: three sequences in one step, then a chunk and a token more of each."""
    direct = Direct(executable, 64)
    chance, sequences, found = np.random.default_rng(3), [], []
    for counts in (LENGTHS, (3, 1, 1, 40), (1, 1, 1, 1)):
        sequences = sequences or [Sequence() for _ in counts]
        work = [
            (sequence, chance.integers(0, vocab, count).tolist())
            for sequence, count in zip(sequences, counts, strict=True)
        ]
        found.append(executable.logits(direct.batch(work, every_row=True)).copy())
    return np.concatenate(found)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("form", MADE)
@pytest.mark.parametrize("model", SHAPES)
def test_logits_are_those_of_the_reference(model, form, isa):
    vocab = SHAPES[model].vocab
    ours = logits_of(native_model(model, form, isa), vocab)
    exact = logits_of(reference_model(model, form), vocab)
    error = np.linalg.norm(ours - exact, axis=1) / np.linalg.norm(exact, axis=1)
    # Keys, values and probabilities are rounded to bfloat16, which moves activations to other
    # places of the 8-bit grids here and there: as much as that grid itself costs.
    assert np.median(error) < (0.02 if form is Format.BF16 else 0.06)
    assert error.max() < 0.2


@pytest.mark.parametrize("isa", ISAS)
def test_8_bit_keys_and_values_cost_little(isa):
    vocab = SHAPES["llama"].vocab
    ours = logits_of(native_model("llama", Format.BF16, isa, kv="int8"), vocab)
    exact = logits_of(reference_model("llama", Format.BF16), vocab)
    error = np.linalg.norm(ours - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert np.median(error) < 0.03
    assert error.max() < 0.2


def test_instruction_sets_agree_on_integers():
    """Linears in INT8 differ between instruction sets by nothing but the attention between them."""
    vocab = SHAPES["llama"].vocab
    found = [logits_of(native_model("llama", Format.INT8, isa), vocab) for isa in ISAS]
    for other in found[1:]:
        error = np.linalg.norm(other - found[0], axis=1) / np.linalg.norm(found[0], axis=1)
        assert np.median(error) < 0.06


def test_a_step_without_rows_or_logits_is_a_step():
    executable = native_model("llama", Format.INT8, ISAS[0])
    direct = Direct(executable, 4)
    batch = direct.batch([])
    assert len(executable.run(batch).tokens) == 0
    assert executable.logits(direct.batch([(Sequence(), [1, 2])])).shape == (1, 131)


@pytest.mark.parametrize(
    ("field", "values", "sentence"),
    [
        ("ids", [131], "token 131 of 131"),
        ("ids", [-1], "token -1"),
        ("tables", [4], "block 4 of 4"),
        ("tables", [-1], "block -1"),
        ("logits_rows", [1], "logits of row 1 of 1"),
        ("contexts", [17], "1 blocks"),
        ("positions", [3], "position 3"),
        ("row_ends", [2], "ascend"),
        ("table_ends", [0], "belong to no sequence"),
    ],
)
def test_contradictions_are_named_before_anything_is_read(field, values, sentence):
    executable = native_model("llama", Format.INT8, ISAS[0])
    direct = Direct(executable, 4)
    batch = direct.batch([(Sequence(), [5])])
    wrong = replace(batch, **{field: np.array(values, np.int32)})
    with pytest.raises(ValueError, match=sentence):
        executable.run(wrong)


def test_numbers_that_are_none_are_named(monkeypatch):
    """NaN weights surface as an error, with TERCET_CHECK one that names the operation."""
    from native_models import arranged

    program = arranged(SHAPES["llama"], Format.BF16)
    weights = stored(program, CpuPacker(native()))
    bad = weights["layers.1.norm2"].data.copy()
    bad.view(np.float32)[3] = np.nan
    weights["layers.1.norm2"] = replace(weights["layers.1.norm2"], data=bad)
    for check, sentence in (("", "row 0 are not finite"), ("1", "operation .*layers.1")):
        monkeypatch.setenv("TERCET_CHECK", check)
        executable = CpuDevice().compile(program, weights)
        direct = Direct(executable, 2)
        with pytest.raises((ValueError, RuntimeError), match=sentence):
            executable.run(direct.batch([(Sequence(), [1])]))


def test_a_forced_instruction_set_is_used_or_refused(monkeypatch):
    monkeypatch.setenv("TERCET_ISA", "portable")
    assert CpuDevice().numerics_id().endswith("portable")
    monkeypatch.setenv("TERCET_ISA", "mmx")
    with pytest.raises(Invalid, match="'mmx' is not to be had"):
        CpuDevice()


def test_other_kv_types_are_refused():
    with pytest.raises(Invalid, match="bf16 or int8"):
        CpuDevice().check(CompileOptions(kv_dtype="float32"))


def test_a_width_that_no_gate_fits_goes_without(monkeypatch):
    monkeypatch.setitem(SHAPES, "narrow", shape_of(ffn=40, hidden=40, head_dim=10))
    for form in (Format.BF16, Format.INT8):
        ours = logits_of(native_model("narrow", form, ISAS[0]), 131)
        exact = logits_of(reference_model("narrow", form), 131)
        error = np.linalg.norm(ours - exact, axis=1) / np.linalg.norm(exact, axis=1)
        assert np.median(error) < (0.02 if form is Format.BF16 else 0.06)


@pytest.mark.parametrize("isa", ISAS[:1])
def test_parts_in_different_formats_are_computed_apart(isa):
    """Files of mixed types keep v (and more) in another format than q and k."""
    program = quantize(plain := build(SHAPES["llama"]), {
        name: Format.Q8_0 if name.endswith((".v", ".up")) else Format.BF16
        for name in matrices(plain)
    })  # fmt: skip
    program = CpuPacker(native()).arrange(fuse(program))
    device = CpuDevice(isa)
    ours = device.compile(program, stored(program, device.packer()))
    exact = ReferenceDevice().compile(program, stored(program, Float32Packer()))
    logits = [logits_of(executable, 131) for executable in (ours, exact)]
    error = np.linalg.norm(logits[0] - logits[1], axis=1) / np.linalg.norm(logits[1], axis=1)
    assert np.median(error) < 0.03
