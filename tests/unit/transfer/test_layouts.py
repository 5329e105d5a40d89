"""Layouts as data: what a block holds where, who keeps which heads, what cannot be copied."""

import pytest
from msgspec.structs import replace

from tercet.base.errors import InvariantBroken
from tercet.messages.kv import KvLayout, Reach
from tercet.transfer.layouts import Index, block_bytes_of, form_of, heads_of
from tercet.transfer.plans import Shard, move_plan, pieces_between, refusal

BF16 = KvLayout(
    dtype="bf16", block_tokens=16, layers=30, kv_heads=3, head_dim=64, block_bytes=368_640
)
INT8 = replace(BF16, dtype="int8", block_bytes=30 * 3 * 2 * (64 * 16 + 64))


def _sized(layout, **changes):
    layout = replace(layout, **changes)
    return replace(layout, block_bytes=block_bytes_of(layout))


def _shard(layout, blocks):
    units = b"".join(block.to_bytes(4, "little") for block in blocks)
    return Shard(reach=Reach(memory="m", blocks_at=4096, layout=layout), units=units)


@pytest.mark.parametrize("layout", [BF16, INT8, _sized(BF16, dtype="float32")])
def test_the_fields_of_a_block_fill_it_and_do_not_overlap(layout):
    layout = _sized(layout, layers=2, kv_heads=2, head_dim=20)
    form = form_of(layout)
    taken = bytearray(form.block_bytes)
    for field in form.fields:
        dims = field.count(Index.DIM)
        for layer in range(2):
            for head in range(2):
                for token in range(16):
                    for dim in range(dims):
                        at = field.offset(layer, head, token, dim)
                        for byte in range(at, at + field.item_bytes):
                            taken[byte] += 1
    assert bytes(taken) == b"\x01" * form.block_bytes


def test_what_is_outside_a_block_has_no_place():
    field = form_of(BF16).fields[0]
    with pytest.raises(InvariantBroken, match="no \\(0, 3, 0, 0\\)"):
        field.offset(0, 3, 0, 0)


def test_a_block_of_another_size_than_its_layout_says_breaks():
    with pytest.raises(InvariantBroken, match="368640 as bf16"):
        form_of(replace(BF16, block_bytes=1000))


@pytest.mark.parametrize(
    ("heads", "tp", "expected"),
    [
        (8, 4, [range(2), range(2, 4), range(4, 6), range(6, 8)]),
        (2, 4, [range(1), range(1), range(1, 2), range(1, 2)]),
        (1, 2, [range(1), range(1)]),
    ],
)
def test_heads_are_shared_by_ranks(heads, tp, expected):
    layout = replace(BF16, kv_heads=heads, tp=tp)
    assert [heads_of(replace(layout, rank=rank)) for rank in range(tp)] == expected


def test_equal_layouts_copy_whole_blocks():
    source, target = _shard(BF16, [7, 2]), _shard(BF16, [1, 0])
    (move,) = move_plan([source], [target], num_tokens=32)
    assert (move.source.start, move.source.stride, move.source.length) == (4096, 368_640, 368_640)
    assert (move.source.units, move.target.units) == (source.units, target.units)


def test_heads_of_a_rank_are_one_piece_of_each_layer():
    half = _sized(BF16, kv_heads=4, tp=2, rank=1)
    whole = _sized(BF16, kv_heads=4)
    pieces = pieces_between(half, whole, range(2, 4), tokens=16, parts=(0, 0))
    assert len(pieces) == 30
    assert {piece.length for piece in pieces} == {half.layer_bytes}


def test_tokens_behind_the_last_are_not_copied():
    source = _shard(_sized(BF16, block_tokens=32), [0])
    target = _shard(BF16, [5, 6])
    plan = move_plan([source], [target], num_tokens=16)
    assert {move.target.units for move in plan} == {(5).to_bytes(4, "little")}
    assert sum(move.target.size for move in plan) == BF16.block_bytes
    with pytest.raises(InvariantBroken, match="no room"):
        move_plan([source], [target], num_tokens=48)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, ""),
        ({"block_tokens": 32}, ""),
        ({"tp": 3, "rank": 2}, ""),
        ({"dtype": "int8"}, "a device would have to convert keys and values from bf16 to int8"),
        ({"layers": 31}, "they are of models of 30 and 31 layers"),
        ({"kv_heads": 6}, "they are of models of 3 and 6 heads of keys and values"),
        ({"head_dim": 80}, "their heads have 64 and 80 numbers"),
        ({"tp": 2}, "3 heads cannot be shared by 2 ranks"),
    ],
)
def test_what_cannot_be_copied_is_said_in_a_sentence(changes, sentence):
    assert refusal(BF16, replace(BF16, **changes)) == sentence


def test_made_up_blocks_are_copied_whole_or_not_at_all():
    layout = replace(BF16, dtype="none", block_bytes=64)
    assert refusal(layout, layout) == ""
    assert (
        refusal(layout, replace(layout, block_tokens=32))
        == "nobody knows how blocks of type none lie"
    )
    (move,) = move_plan([_shard(layout, [3])], [_shard(layout, [4])], num_tokens=16)
    assert move.source.length == 64
