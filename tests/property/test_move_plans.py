"""Copying by a plan gives exactly the bytes that the target's ranks would hold themselves."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tercet.messages.kv import KvLayout, Reach
from tercet.transfer.layouts import block_bytes_of, heads_of
from tercet.transfer.plans import Shard, mapped_rank, move_plan, refusal

BEFORE = 64
"""Bytes of an arena before its blocks."""


def layout_of(dtype, *, tokens, heads, tp, rank, layers=2, head_dim=24):
    layout = KvLayout(
        dtype=dtype,
        block_tokens=tokens,
        layers=layers,
        kv_heads=heads,
        head_dim=head_dim,
        block_bytes=0,
        tp=tp,
        rank=rank,
    )
    return replace(layout, block_bytes=block_bytes_of(layout))


def numbers_of(rand, dtype, *, layers, heads, tokens, head_dim):
    """Keys and values of a whole model, [2, layer, head, token, dim], and their scales."""
    dim = head_dim if dtype == "float32" else -(-head_dim // 16) * 16
    kind = {"bf16": np.uint16, "int8": np.uint8, "float32": np.uint32}[dtype]
    numbers = rand.integers(0, np.iinfo(kind).max, (2, layers, heads, tokens, dim), kind)
    scales = rand.integers(0, 2**32 - 1, (2, layers, heads, tokens), np.uint32)
    return numbers, scales


def blocks_of(dtype, numbers, scales):
    """Encode [2, layer, head, tokens of one block, dim] as the devices' kernels say it lies."""
    keys, values = numbers
    layers, heads, tokens, dim = keys.shape
    if dtype == "float32":
        return np.stack([keys, values], axis=1).tobytes()
    word = 4 // keys.itemsize
    k = keys.reshape(layers, heads, tokens, dim // word, word).transpose(0, 1, 3, 2, 4)
    v = values.reshape(layers, heads, tokens // word, word, dim).transpose(0, 1, 2, 4, 3)
    out = b""
    for layer in range(layers):
        for head in range(heads):
            for kind, part in enumerate((k, v)):
                out += part[layer, head].tobytes()
                if dtype == "int8":
                    out += scales[kind, layer, head].tobytes()
    return out


def encoded(layout, numbers, scales):
    """The blocks that a rank would hold of all tokens, one after another."""
    heads, size = heads_of(layout), layout.block_tokens
    mine = slice(heads.start, heads.stop)
    return [
        blocks_of(
            layout.dtype,
            numbers[:, :, mine, at : at + size],
            scales[:, :, mine, at : at + size],
        )
        for at in range(0, numbers.shape[3], size)
    ]


class Memory:
    """An arena with blocks at shuffled places."""

    def __init__(self, name, layout, num_blocks, rand):
        self.layout = layout
        room = num_blocks + 2
        self.places = rand.permutation(room)[:num_blocks]
        self.data = np.zeros(BEFORE + room * layout.block_bytes, np.uint8)
        self.written = np.zeros(len(self.data), bool)
        self.shard = Shard(
            reach=Reach(memory=name, blocks_at=BEFORE, layout=layout),
            units=self.places.astype("<i4").tobytes(),
            lives=(100 + self.places).astype("<u4").tobytes(),
        )

    def block(self, at):
        begin = BEFORE + int(self.places[at]) * self.layout.block_bytes
        return self.data[begin : begin + self.layout.block_bytes]

    def gather(self, strip):
        return np.concatenate([self.data[place] for place in self._ranges(strip)])

    def scatter(self, strip, data):
        size = strip.length
        for at, place in enumerate(self._ranges(strip)):
            assert not self.written[place].any(), "a byte is written twice"
            self.written[place] = True
            self.data[place] = data[at * size : (at + 1) * size]

    def _ranges(self, strip):
        units = np.frombuffer(strip.units, "<i4")
        assert (np.frombuffer(strip.lives, "<u4") == 100 + units).all()
        starts = strip.start + units * strip.stride
        return [slice(start, start + strip.length) for start in starts.tolist()]


SIDES = st.tuples(st.sampled_from([16, 32, 48]), st.sampled_from([1, 2, 4, 8]))


@settings(deadline=None)
@given(
    dtype=st.sampled_from(["bf16", "int8", "float32"]),
    sides=st.tuples(SIDES, SIDES),
    heads=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([16, 24]),
    group=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_plan_gives_the_bytes_that_the_target_would_hold(
    dtype, sides, heads, head_dim, group, seed
):
    rand = np.random.default_rng(seed)
    tokens = 96
    shape = {"layers": 2, "heads": heads, "tokens": tokens, "head_dim": head_dim}
    numbers, scales = numbers_of(rand, dtype, **shape)
    memories = []
    for side, (block_tokens, tp) in zip("st", sides, strict=True):
        layouts = [
            layout_of(dtype, tokens=block_tokens, heads=heads, tp=tp, rank=rank, head_dim=head_dim)
            for rank in range(tp)
        ]
        memories.append(
            [
                Memory(f"{side}/{layout.rank}", layout, tokens // block_tokens, rand)
                for layout in layouts
            ]
        )
    sources, targets = memories
    for one in sources:
        for at, block in enumerate(encoded(one.layout, numbers, scales)):
            one.block(at)[:] = np.frombuffer(block, np.uint8)
    for one in targets:
        assert refusal(sources[0].layout, one.layout) == ""
    plan = move_plan(
        [one.shard for one in sources],
        [one.shard for one in targets],
        num_tokens=tokens,
        group=group,
        groups=4,
    )
    for move in plan:
        source, target = sources[move.source_rank], targets[move.target_rank]
        assert move.source.memory == source.shard.reach.memory
        assert move.source.size == move.target.size
        target.scatter(move.target, source.gather(move.source))
    assert sum(move.target.size for move in plan) == sum(
        one.layout.block_bytes * len(one.places) for one in targets
    )
    for one in targets:
        for at, block in enumerate(encoded(one.layout, numbers, scales)):
            assert one.block(at).tobytes() == block


@given(
    decode_tp=st.sampled_from([1, 2, 4, 8]),
    ratio=st.sampled_from([1, 2, 4]),
    rounds=st.integers(1, 5),
)
def test_decode_ranks_are_spread_evenly_over_prefill_ranks(decode_tp, ratio, rounds):
    """papers.md 1.10, with a group size that is a whole number."""
    decode_dp, readers = ratio * rounds, {}
    for dp_rank in range(decode_dp):
        for tp_rank in range(decode_tp):
            rank = mapped_rank(
                prefill_tp=decode_tp * ratio,
                decode_tp=decode_tp,
                decode_dp=decode_dp,
                decode_dp_rank=dp_rank,
                decode_tp_rank=tp_rank,
            )
            group_size = decode_dp / ratio
            assert rank == dp_rank // group_size * decode_tp + tp_rank
            readers[rank] = readers.get(rank, 0) + 1
    assert readers == dict.fromkeys(range(decode_tp * ratio), rounds)
