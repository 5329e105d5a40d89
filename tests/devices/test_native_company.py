"""I4 of the native device, bit for bit: a row's logits, tokens and log-probabilities are the same
alone, in any company, in chunks of any size, at any number of threads.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from native_models import ISAS, SHAPES, native_model

from tercet.devices.direct import Direct, Sequence, greedy
from tercet.program.formats import Format

MODEL = "llama"
VOCAB = SHAPES[MODEL].vocab
NUM_BLOCKS = 128
FORMS = (Format.BF16, Format.INT8, Format.Q4_1, Format.Q8_0)

pieces = st.lists(st.integers(1, 70), min_size=1, max_size=4)
companies = st.lists(st.tuples(st.integers(0, 9), pieces), max_size=7)


def tokens_of(seed, count):
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def alone(executable, tokens):
    """Logits of every row of one sequence, a token at a time."""
    direct, sequence = Direct(executable, NUM_BLOCKS), Sequence()
    steps = (direct.batch([(sequence, [token])], every_row=True) for token in tokens)
    return np.concatenate([executable.logits(step).copy() for step in steps])


def together(executable, members, order):
    """Logits of every row of every member, chunk by chunk, all members in the same steps."""
    direct = Direct(executable, NUM_BLOCKS)
    sequences = [Sequence() for _ in members]
    found = [[] for _ in members]
    for step in range(max(len(cuts) for _, cuts in members)):
        present = [m for m in order if step < len(members[m][1])]
        work = []
        for m in present:
            seed, cuts = members[m]
            start = sum(cuts[:step])
            work.append((sequences[m], tokens_of(seed, sum(cuts))[start : start + cuts[step]]))
        logits = executable.logits(direct.batch(work, every_row=True))
        at = 0
        for m in present:
            count = members[m][1][step]
            found[m].append(logits[at : at + count].copy())
            at += count
    return [np.concatenate(rows) for rows in found]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv", ["bf16", "int8"])
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=6, deadline=None)
@given(first=pieces, others=companies, chance=st.randoms(use_true_random=False))
def test_every_row_is_the_same_in_any_company(form, kv, isa, first, others, chance):
    members = [(100, first), *others]
    order = list(range(len(members)))
    chance.shuffle(order)
    both = [native_model(MODEL, form, isa, kv, threads) for threads in (1, 2)]
    exact = alone(both[0], tokens_of(100, sum(first)))
    for executable in both:
        found = together(executable, members, order)[0]
        np.testing.assert_array_equal(found.view(np.uint32), exact.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("form", [Format.BF16, Format.INT8])
def test_a_long_context_is_the_same_split_over_threads(form, isa):
    """One stream's spans are shared out over the team; 64 streams' are not."""
    tokens = tokens_of(7, 700)
    results = []
    for threads in (1, 2, 5):
        executable = native_model(MODEL, form, isa, "bf16", threads)
        direct, sequence = Direct(executable, 300), Sequence()
        direct.run([(sequence, tokens[:650])])
        others = [Sequence() for _ in range(64 if threads == 2 else 0)]
        rows = []
        for token in tokens[650:]:
            work = [(sequence, [token]), *((other, [token]) for other in others)]
            rows.append(executable.logits(direct.batch(work))[0].copy())
        results.append(np.array(rows))
    for other in results[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), results[0].view(np.uint32))


@settings(max_examples=20, deadline=None)
@given(
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([1.0, 0.8]),
    company=st.integers(0, 70),
    place=st.integers(0, 70),
)
def test_tokens_and_logprobs_are_the_same_in_any_company(temperature, top_k, top_p, company, place):
    executable = native_model(MODEL, Format.INT8, ISAS[0])

    def draw(count, at):
        direct = Direct(executable, 96)
        work = [(Sequence(), tokens_of(5 if i == at else 50 + i, 9)) for i in range(count)]
        ones = np.ones(count, np.float32)
        sampling = replace(
            greedy(count),
            temperature=ones * np.float32(temperature),
            top_k=np.full(count, top_k, np.int32),
            top_p=ones * np.float32(top_p),
            seed=np.where(np.arange(count) == at, 77, 5).astype(np.uint64),
            num_logprobs=np.full(count, 3, np.int32),
        )
        out = executable.run(replace(direct.batch(work), sampling=sampling))
        return [
            np.asarray(array)[at].tobytes()
            for array in (out.tokens, out.logprobs, out.ranks, out.top_ids, out.top_logprobs)
        ]

    assert draw(company + 1, min(place, company)) == draw(1, 0)
