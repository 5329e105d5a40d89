"""Appending and attending over paged memory against a plain formula in float64."""

import numpy as np
import pytest
from small_decoders import exact_attention, executable, heads_of, ids_of

from tercet.devices.direct import Direct, Sequence

SIZES = [(6, 3, 4), (4, 4, 10), (5, 1, 6)]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SIZES)
@pytest.mark.parametrize(
    "pieces", [(1,), (16,), (17, 1, 1), (3, 5, 8, 1, 1), (1,) * 40, (300, 7), (130, 129, 1)]
)
def test_a_sequence_in_pieces(heads: int, kv_heads: int, head_dim: int, pieces) -> None:
    ids = ids_of(1, sum(pieces))
    sizes = (heads, kv_heads, head_dim)
    direct = Direct(executable(*sizes), sum(pieces) // 16 + 2)
    sequence, given, start = Sequence(), [], 0
    for count in pieces:
        step = direct.batch([(sequence, ids[start : start + count])], every_row=True)
        given.append(direct._executable.logits(step).copy())
        start += count
    exact = exact_attention(ids, heads_of(*sizes))
    np.testing.assert_allclose(np.concatenate(given), exact, atol=3e-6)


@pytest.mark.parametrize("many", [0, 1, 3])
def test_sequences_of_all_lengths_in_one_step(many: int) -> None:
    """Decoding and prefilling rows side by side, in any order."""
    lengths = [1, 2, 15, 16, 17, 31, 40, 40, 41, 200, 1000, 1024, 1500]
    direct = Direct(executable(6, 3, 4), sum(lengths) // 16 + 6 * len(lengths))
    sequences, texts = [Sequence() for _ in lengths], [ids_of(n, n + 30) for n in lengths]
    direct.run([(one, text[:n]) for one, text, n in zip(sequences, texts, lengths, strict=True)])
    order = np.random.default_rng(many).permutation(len(lengths))
    counts = {int(index): 1 if place >= many else 7 + place for place, index in enumerate(order)}
    shuffled = [int(index) for index in np.random.default_rng(9).permutation(len(lengths))]
    work = [(sequences[i], texts[i][lengths[i] : lengths[i] + counts[i]]) for i in shuffled]
    ours = direct._executable.logits(direct.batch(work, every_row=True))
    exact = [
        exact_attention(texts[i][: lengths[i] + counts[i]], heads_of(6, 3, 4))[lengths[i] :]
        for i in shuffled
    ]
    np.testing.assert_allclose(ours, np.concatenate(exact), atol=3e-6)


def test_a_job_with_broken_numbers_hurts_only_itself() -> None:
    """Blocks that a broken job left are used again: masked rows must not leak into sums."""
    device = executable(6, 3, 4)
    direct = Direct(device, 4)
    direct.kv.blocks[:] = np.inf
    sequence, ids = Sequence(), ids_of(3, 20)
    for token in ids:
        step = direct.batch([(sequence, [token])])
        assert np.isfinite(device.logits(step)).all()


def test_padding_reads_only_the_sequences_own_blocks() -> None:
    """A short sequence beside a longer one, whose block 0 belongs to somebody broken."""
    device = executable(6, 3, 4)
    direct = Direct(device, 40)
    short, longer = Sequence(), Sequence()
    texts = [ids_of(4, 130), ids_of(5, 150)]
    direct.run([(short, texts[0][:-1]), (longer, texts[1][:-1])])
    mine = set(short.blocks + longer.blocks)
    direct.kv.blocks[[block for block in range(40) if block not in mine]] = np.nan
    ours = device.logits(direct.batch([(longer, texts[1][-1:]), (short, texts[0][-1:])]))
    exact = [exact_attention(text, heads_of(6, 3, 4))[-1] for text in (texts[1], texts[0])]
    np.testing.assert_allclose(ours, exact, atol=3e-6)
