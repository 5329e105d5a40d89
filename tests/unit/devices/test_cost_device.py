"""The cost device: durations from sizes, tokens from seeds."""

import math

import numpy as np
import pytest
from sampler_cases import rows_of, unscored

from tercet.base.errors import Invalid
from tercet.base.model import ModelShape
from tercet.devices.contract import Batch, MadeUp
from tercet.devices.cost.config import CostConfig
from tercet.devices.cost.device import CostDevice, sizes_of
from tercet.devices.cost.durations import LinearDuration
from tercet.models.families.build import build
from tercet.program.costs import Sizes, cost
from tercet.program.fuse import fuse

SHAPE = ModelShape(
    family="llama", num_layers=3, hidden=32, num_heads=4, num_kv_heads=2, head_dim=8, ffn=48,
    vocab=50, context_max=256, norm_eps=1e-5, rope_theta=1e4, end_ids=(7, 8),
)  # fmt: skip
PROGRAM = fuse(build(SHAPE))


def batch_of(counts, contexts, *, end_position=-1, scored=None, vocab=50, ends=(7, 8), **sampling):
    """Every sequence's last row draws."""
    row_ends = np.cumsum(counts).astype(np.int32)
    contexts = np.array(contexts, np.int32)
    blocks = -(-contexts // 16)
    rows = len(counts)
    return Batch(
        ids=np.zeros(row_ends[-1], np.int32),
        positions=np.concatenate(
            [
                np.arange(context - count, context)
                for count, context in zip(counts, contexts, strict=True)
            ]
        ).astype(np.int32),
        row_ends=row_ends,
        contexts=contexts,
        tables=np.arange(blocks.sum(), dtype=np.int32),
        table_ends=np.cumsum(blocks).astype(np.int32),
        logits_rows=row_ends - 1,
        sampling=rows_of(rows, **{"position": contexts} | sampling),
        scored_ids=unscored(rows) if scored is None else np.array(scored, np.int32),
        made_up=MadeUp(
            vocab=vocab, end_ids=ends, end_position=np.full(rows, end_position, np.int32)
        ),
    )


def compiled(**settings):
    return CostDevice(**settings).compile(PROGRAM, {})


def test_sizes_count_rows_and_what_they_look_at():
    assert sizes_of(batch_of([1, 3], [10, 5])) == Sizes(
        rows=4, logits_rows=2, attended_pairs=10 + 3 + 4 + 5, context_tokens=15
    )


def test_tokens_are_a_function_of_seed_choice_and_position():
    together = compiled().run(batch_of([1] * 6, range(20, 26), seed=range(6), choice=[0, 1] * 3))
    for row in range(6):
        alone = batch_of([1], [20 + row], seed=row, choice=row % 2)
        assert compiled().run(alone).tokens[0] == together.tokens[row]
    varied = [
        compiled().run(batch_of([1], [20], **{name: value})).tokens[0]
        for name in ("seed", "choice")
        for value in range(30)
    ]
    assert len(set(varied)) > 10


@pytest.mark.parametrize(("vocab", "ends"), [(50, (7, 8)), (4, (0, 1, 3)), (1, ()), (9, (8,))])
def test_end_ids_are_drawn_where_the_slot_says_and_never_before(vocab, ends):
    contexts = range(1, 200)
    batch = batch_of([1] * 199, contexts, end_position=70, vocab=vocab, ends=ends)
    tokens = compiled().run(batch).tokens
    assert ((tokens >= 0) & (tokens < vocab)).all()
    found = [context for context, token in zip(contexts, tokens, strict=True) if token in ends]
    assert found == ([70] if ends else [])


def test_logprobs_are_halves():
    batch = batch_of([1, 1, 1], [5, 6, 7], num_logprobs=[2, -1, 0], scored=[-1, 49, -1])
    got = compiled().run(batch)
    half = np.float32(-math.log(2))
    assert got.logprobs.tolist() == [half, 0.0, half]
    assert got.ranks.tolist() == [1, 0, 1]
    assert got.top_ids[0].tolist() == [got.tokens[0], (got.tokens[0] + 1) % 50]
    assert got.top_ids[1].tolist() == [49, 0]
    np.testing.assert_allclose(got.top_logprobs[0], [half, 2 * half])
    assert got.scored_logprobs.tolist() == [0.0, half, 0.0]
    assert got.scored_ranks.tolist() == [0, 1, 0]


def test_a_step_takes_its_duration_and_lets_it_pass():
    slept = []
    duration = LinearDuration(base_ns=100, per_row_ns=10, per_logit_ns=5, per_pair_ns=1)
    batch = batch_of([1, 3], [10, 5])
    assert compiled(duration=duration, sleep=slept.append).run(batch).duration_ns == 172
    assert slept == [172]
    assert compiled(duration=duration).run(batch).duration_ns == 172
    assert compiled(sleep=slept.append).run(batch).duration_ns == 0
    assert slept == [172], "no time passes where a step takes none"


def test_the_roofline_takes_the_longer_of_arithmetic_and_traffic():
    batch = batch_of([1, 3], [10, 5])
    sizes, whole = sizes_of(batch), cost(PROGRAM)
    flops, moved = whole.flops.at(sizes), whole.bytes.at(sizes)
    arithmetic = compiled(config=CostConfig(flops_per_s=1e6)).run(batch).duration_ns
    traffic = compiled(config=CostConfig(bytes_per_s=1e6)).run(batch).duration_ns
    both = compiled(config=CostConfig(flops_per_s=1e6, bytes_per_s=1e6)).run(batch).duration_ns
    assert arithmetic == pytest.approx(flops * 1e3, rel=1e-6)
    assert traffic == pytest.approx(moved * 1e3, rel=1e-6)
    assert max(arithmetic, traffic) <= both <= arithmetic + traffic
    late = compiled(config=CostConfig(flops_per_s=1e6, step_ns=5000)).run(batch).duration_ns
    assert late == pytest.approx(arithmetic + 5000, abs=1)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_settings_that_make_no_sense_are_refused(value):
    with pytest.raises(Invalid, match=r"cost\.step_ns"):
        CostConfig(step_ns=value)


def test_text_may_repeat_itself():
    """As quotes do: tokens of equal places in the period are equal, ends come where they must."""
    contexts = list(range(20, 44))
    device = compiled(config=CostConfig(repeat=6))
    tokens = device.run(batch_of([1] * 24, contexts, seed=5, end_position=30)).tokens.tolist()
    assert tokens[contexts.index(30)] == 7
    others = {at: token for at, token in zip(contexts, tokens, strict=True) if at != 30}
    assert all(others[at] == others[at + 6] for at in others if at + 6 in others)
    assert len(set(others.values())) > 2
    plain = compiled().run(batch_of([1] * 24, contexts, seed=5)).tokens.tolist()
    assert len(set(plain)) > len(set(tokens))
