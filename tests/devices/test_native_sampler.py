"""The native sampler decides as the reference does: any logits, any parameters, any company.

Logits come to it by a program of one embedding: row r of the table is the logits of row r.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_cases import one_row, rows_of, unscored

from tercet.devices.contract import F32, I32, Sampling
from tercet.devices.cpu.native import native, usable_isas
from tercet.devices.reference.sampling import SampledRows, sample
from tercet.program.rounding import to_bfloat16

MODULE = native()
pytestmark = pytest.mark.skipif(MODULE is None, reason="the native device is not built")
_KV = np.zeros(1, np.uint8)
"""Stands for KV memory, which the program does not touch."""


def natively(
    logits: F32, sampling: Sampling, scored_ids: I32, *, isa: str = "", threads: int = 2
) -> SampledRows:
    """What the native sampler gives for logits [R, V] that bfloat16 can say."""
    num_rows, vocab = logits.shape
    assert MODULE is not None
    program = MODULE.Program(
        isa=isa or usable_isas()[0],
        threads=threads,
        cpus=[],
        spin_ns=0,
        kv_type=MODULE.KvType.BF16,
        layers=1,
        kv_heads=1,
        head_dim=16,
        heads=1,
    )
    table = MODULE.pack_bf16(logits)
    step = program.value(MODULE.Group.STEP, MODULE.Grid.F32, vocab)
    chosen = program.value(MODULE.Group.LOGITS, MODULE.Grid.F32, vocab)
    program.embed("embed", table, MODULE.Format.BF16, num_rows, vocab, step)
    program.rows("rows", step, chosen)
    program.sample("sample", chosen)
    program.seal()
    blocks = np.zeros(-(-num_rows // 16), np.int32)
    program.bind(_KV.ctypes.data, 1)
    count = np.array([num_rows], np.int32)
    every = np.arange(num_rows, dtype=np.int32)
    ends = np.array([len(blocks)], np.int32)
    return SampledRows(
        **dict(
            zip(
                (
                    "tokens",
                    "logprobs",
                    "ranks",
                    "top_ids",
                    "top_logprobs",
                    "scored_logprobs",
                    "scored_ranks",
                    "margins",
                ),
                program.run(every, every, count, count, blocks, ends, every, sampling, scored_ids),
                strict=True,
            )
        )
    )


def same(got: SampledRows, wanted: SampledRows) -> None:
    for name in ("tokens", "ranks", "top_ids", "scored_ranks"):
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name), err_msg=name)
    for name in ("logprobs", "top_logprobs", "scored_logprobs", "margins"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(wanted, name), rtol=1e-5, atol=1e-5, err_msg=name
        )


@st.composite
def cases(draw: st.DrawFn) -> tuple[F32, Sampling, I32]:
    """Logits of several kinds and rows of mixed parameters."""
    vocab = draw(st.sampled_from([1, 2, 15, 17, 64, 300, 5000]))
    num_rows = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    kind = draw(st.sampled_from(["normal", "ties", "flat", "sorted", "peaked", "masked"]))
    logits = rng.standard_normal((num_rows, vocab)) * draw(st.sampled_from([0.1, 1.0, 5.0]))
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "flat":
        logits[:] = 2.0
    elif kind == "sorted":
        logits.sort(axis=1)
    elif kind == "peaked":
        logits[:, rng.integers(0, vocab)] += 20.0
    elif kind == "masked":
        logits[rng.random(logits.shape) < 0.9] = -np.inf

    def some(*values: float) -> list[float]:
        return [float(value) for value in rng.choice(values, num_rows)]

    history = [
        {int(token): int(rng.integers(0, 4)) for token in rng.integers(0, vocab, 30)}
        for _ in range(num_rows)
    ]
    bias = [
        {int(token): some(-np.inf, 5.0, -3.0)[0] for token in rng.integers(0, vocab, 5)}
        for _ in range(num_rows)
    ]
    sampling = rows_of(
        num_rows,
        temperature=some(0.0, 0.7, 1.0, 1.0, 2.0, 1e-6, 100.0),
        top_k=some(0, 0, 1, 5, 40, 1000),
        top_p=some(1.0, 1.0, 0.9, 0.5, 0.01, 0.99),
        min_p=some(0.0, 0.0, 0.05, 0.5, 1.0),
        seed=rng.integers(0, 1 << 63, num_rows, dtype=np.uint64),
        choice=some(0, 1, 2),
        position=some(0, 5, 100000),
        repetition=some(1.0, 1.3, 0.7),
        presence=some(0.0, 0.5, -0.5),
        frequency=some(0.0, 0.25),
        num_logprobs=some(-1, -1, 0, 1, 20),
        history=history if draw(st.booleans()) else None,
        bias=bias if draw(st.booleans()) else None,
    )
    scored = np.where(rng.random(num_rows) < 0.3, rng.integers(0, vocab, num_rows), -1)
    return to_bfloat16(logits.astype(np.float32)), sampling, scored.astype(np.int32)


@pytest.mark.parametrize("isa", usable_isas())
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_it_decides_as_the_reference_does(isa: str, case: tuple[F32, Sampling, I32]) -> None:
    logits, sampling, scored = case
    same(natively(logits, sampling, scored, isa=isa), sample(logits.copy(), sampling, scored))


def test_company_and_threads_change_nothing() -> None:
    rng = np.random.default_rng(3)
    logits = to_bfloat16(rng.standard_normal((70, 700)).astype(np.float32))
    sampling = rows_of(
        70,
        temperature=rng.choice([0.0, 1.0, 0.5], 70),
        top_p=rng.choice([1.0, 0.8], 70),
        top_k=rng.choice([0, 30], 70),
        num_logprobs=rng.choice([-1, 4], 70),
    )
    together = natively(logits, sampling, unscored(70), threads=2)
    for row in range(70):
        alone = natively(logits[row : row + 1], one_row(sampling, row), unscored(1), threads=1)
        for name in ("tokens", "logprobs", "ranks", "margins"):
            assert getattr(alone, name)[0] == getattr(together, name)[row]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_logits_name_their_row(value: float) -> None:
    logits = np.zeros((3, 10), np.float32)
    logits[2, 4] = value
    with pytest.raises(ValueError, match="row 2 are not finite"):
        natively(logits, rows_of(3, temperature=1.0), unscored(3))


@pytest.mark.parametrize("foreign", [{"history": [{10: 1}]}, {"bias": [{-1: 1.0}]}])
def test_tokens_outside_the_vocabulary_are_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary of 10"):
        natively(np.zeros((1, 10), np.float32), rows_of(1, **foreign), unscored(1))
