"""`gate`: the same computation with gate and up in one linear."""

import numpy as np
import pytest
from msgspec.structs import replace

from tercet.base.model import ModelShape
from tercet.devices.direct import Direct, Sequence
from tercet.devices.reference.device import ReferenceDevice
from tercet.models.families.build import build
from tercet.program.costs import cost
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.gate import gate
from tercet.program.operations import Glu, Linear
from tercet.program.quantize import matrices, quantize
from tercet.program.recipes import Ckpt, Interleave, evaluate, format_of

SHAPE = ModelShape(
    family="llama",
    hidden=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    ffn=48,
    vocab=50,
    norm_eps=1e-5,
    rope_theta=10000.0,
    context_max=64,
    end_ids=(0,),
    tied_embeddings=True,
)


def weights_of(program, seed=1):
    random = np.random.default_rng(seed)
    read = {}

    def get(name, shape):
        if name not in read:
            read[name] = random.normal(0, 0.2, shape).astype(np.float32)
        return read[name]

    shapes = {}
    for recipe in build(SHAPE).weights.values():
        for one in [recipe] if isinstance(recipe, Ckpt) else [recipe.source]:
            shapes[one.name] = one.shape
    for name, shape in sorted(shapes.items()):
        get(name, shape)
    return {name: evaluate(recipe, read.__getitem__) for name, recipe in program.weights.items()}


@pytest.mark.parametrize("form", [Format.F32, Format.BF16, Format.INT8])
def test_gated_logits_are_those_of_the_pair(form):
    plain = build(SHAPE)
    plain = quantize(plain, dict.fromkeys(matrices(plain), form))
    pair, gated = fuse(plain), gate(fuse(plain))
    assert not any(isinstance(one.attributes, Glu) for one in gated.operations)
    logits = []
    for program in (pair, gated):
        executable = ReferenceDevice().compile(program, weights_of(program))
        direct = Direct(executable, 8)
        batch = direct.batch([(Sequence(), [3, 1, 4, 1, 5])], every_row=True)
        logits.append(executable.logits(batch).copy())
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-5, atol=1e-5)


def test_interleaved_rows_take_turns_by_sixteen():
    recipe = Interleave(Ckpt("gate", (32, 3)), Ckpt("up", (32, 3)))
    held = {"gate": np.zeros((32, 3), np.float32), "up": np.ones((32, 3), np.float32)}
    turns = evaluate(recipe, held.__getitem__)
    assert recipe.shape == (64, 3)
    assert format_of(recipe) is Format.F32
    assert turns[:, 0].reshape(4, 16).mean(axis=1).tolist() == [0, 1, 0, 1]


def test_a_pair_of_a_width_that_does_not_fit_stays_as_it_is():
    shape = replace(SHAPE, ffn=40)
    program = fuse(build(shape))
    assert gate(program).operations == program.operations


def test_gating_costs_the_same_products_and_moves_less():
    pair, gated = fuse(build(SHAPE)), gate(fuse(build(SHAPE)))
    assert cost(gated).flops == cost(pair).flops
    assert cost(gated).bytes.t < cost(pair).bytes.t
    linears = [one.attributes for one in gated.operations if isinstance(one.attributes, Linear)]
    assert sum(one.gated for one in linears) == SHAPE.num_layers
