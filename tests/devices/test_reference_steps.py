"""Whole steps of the reference device: fusion, company, empty steps, contradictions."""

import numpy as np
import pytest
from msgspec.structs import replace

from tercet.base.errors import InvariantBroken
from tercet.base.model import ModelShape
from tercet.devices.direct import Direct, Sequence, greedy
from tercet.devices.reference import ReferenceDevice, ReferenceExecutable
from tercet.models.families.build import build
from tercet.program.fuse import fuse
from tercet.program.recipes import evaluate, sources

SHAPE = ModelShape(
    family="qwen2",
    num_layers=3,
    hidden=20,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    ffn=36,
    vocab=101,
    context_max=2048,
    norm_eps=1e-5,
    rope_theta=10000.0,
    attention_bias=True,
)
IDS = [int(token) for token in np.random.default_rng(5).integers(0, 101, 60)]


def compiled(*, fused: bool = True) -> ReferenceExecutable:
    plain = build(SHAPE)
    chance = np.random.default_rng(0)
    tensors = {
        one.name: (chance.standard_normal(one.shape) * 0.3).astype(np.float32)
        for recipe in plain.weights.values()
        for one in sources(recipe)
    }
    program = fuse(plain) if fused else plain
    return ReferenceDevice().compile(
        program, {name: evaluate(one, tensors.__getitem__) for name, one in program.weights.items()}
    )


def logits_of(executable: ReferenceExecutable, pieces: list[int]) -> np.ndarray:
    direct, sequence, found, start = Direct(executable, 9), Sequence(), [], 0
    for count in pieces:
        step = direct.batch([(sequence, IDS[start : start + count])], every_row=True)
        found.append(executable.logits(step).copy())
        start += count
    return np.concatenate(found)


@pytest.mark.parametrize("pieces", [[60], [1] * 60, [2, 3, 20, 1, 34]])
def test_the_fused_program_gives_what_the_plain_one_gives(pieces: list[int]) -> None:
    plain, fused = logits_of(compiled(fused=False), pieces), logits_of(compiled(), pieces)
    np.testing.assert_allclose(fused, plain, atol=2e-5)


def test_any_chunking_gives_the_same_logits() -> None:
    whole = logits_of(compiled(), [60])
    np.testing.assert_allclose(logits_of(compiled(), [1] * 60), whole, atol=2e-5)
    np.testing.assert_allclose(logits_of(compiled(), [16, 16, 28]), whole, atol=2e-5)


def test_company_changes_nothing_beyond_rounding() -> None:
    alone = logits_of(compiled(), [60])[-1]
    executable = compiled()
    direct = Direct(executable, 200)
    others = [(Sequence(), IDS[:n]) for n in (1, 1, 30, 59, 2)]
    step = direct.batch([*others[:3], (Sequence(), IDS), *others[3:]])
    np.testing.assert_allclose(executable.logits(step)[3], alone, atol=2e-5)


def test_a_step_without_rows_and_one_without_wanted_rows() -> None:
    executable = compiled()
    direct = Direct(executable, 9)
    empty = executable.run(direct.batch([]))
    assert len(empty.tokens) == len(empty.margins) == 0
    sequence = Sequence()
    step = direct.batch([(sequence, IDS[:40])])
    unwanted = replace(
        step,
        logits_rows=np.empty(0, np.int32),
        sampling=greedy(0),
        scored_ids=np.empty(0, np.int32),
    )
    assert len(executable.run(unwanted).tokens) == 0
    rest = executable.logits(direct.batch([(sequence, IDS[40:])]))
    np.testing.assert_allclose(rest, logits_of(compiled(), [60])[-1:], atol=2e-5)


def test_rows_come_in_the_order_of_the_batch() -> None:
    executable = compiled()
    direct = Direct(executable, 99)
    whole = logits_of(compiled(), [60])
    one, two, three = Sequence(), Sequence(), Sequence()
    direct.run([(one, IDS[:50]), (two, IDS[:20]), (three, IDS[:5])])
    work = [(one, IDS[50:51]), (two, IDS[20:24]), (three, IDS[5:6])]
    ours = executable.logits(direct.batch(work, every_row=True))
    np.testing.assert_allclose(ours, whole[[50, 20, 21, 22, 23, 5]], atol=2e-5)


def test_steps_of_all_sizes_follow_each_other() -> None:
    """Memory grows and lists of calls are kept or made anew; earlier answers stay right."""
    executable = compiled()
    direct = Direct(executable, 600)
    first = executable.run(direct.batch([(Sequence(), IDS)])).tokens
    for count in [*range(1, 60), 59, 3, 1, 60]:
        executable.run(direct.batch([(Sequence(), IDS[:count])], every_row=count % 2 == 0))
    direct = Direct(executable, 9)
    np.testing.assert_array_equal(executable.run(direct.batch([(Sequence(), IDS)])).tokens, first)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": np.array([101], np.int32)},
        {"ids": np.array([-1], np.int32)},
        {"tables": np.array([9], np.int32)},
        {"tables": np.array([-1], np.int32)},
        {"contexts": np.array([17], np.int32)},
        {"ids": np.array([1, 2], np.int32)},
    ],
)
def test_a_contradictory_batch_stops_the_process(change: dict[str, np.ndarray]) -> None:
    executable = compiled()
    step = Direct(executable, 9).batch([(Sequence(), IDS[:1])])
    with pytest.raises(InvariantBroken):
        executable.run(replace(step, **change))


def test_weights_and_memory_that_do_not_fit_stop_the_process() -> None:
    program = fuse(build(SHAPE))
    weights = {name: np.zeros(one.shape, np.float32) for name, one in program.weights.items()}
    device = ReferenceDevice()
    for wrong in (np.zeros((3, 3), np.float32), np.zeros(weights["norm"].shape)):
        with pytest.raises(InvariantBroken, match="norm"):
            device.compile(program, weights | {"norm": wrong})
    del weights["norm"]
    with pytest.raises(InvariantBroken, match="norm is missing"):
        device.compile(program, weights)


def test_weights_may_be_read_only_maps() -> None:
    program = fuse(build(SHAPE))
    weights = {name: np.zeros(one.shape, np.float32) for name, one in program.weights.items()}
    for array in weights.values():
        array.flags.writeable = False
    executable = ReferenceDevice().compile(program, weights)
    tokens = executable.run(Direct(executable, 9).batch([(Sequence(), IDS)])).tokens
    assert list(tokens) == [0]


def test_the_numerics_id_says_what_numbers_depend_on() -> None:
    text = ReferenceDevice().numerics_id()
    assert text.startswith("reference; numpy ")
    assert np.__version__ in text
    assert "float32" in text
    assert "openblas" in text or "blas" in text or "accelerate" in text.lower()
