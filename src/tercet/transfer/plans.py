"""Which bytes go where: from blocks of one layout to blocks of another, M ranks to N ranks.

    source, tp 2, blocks of 32      target, tp 1, blocks of 16

    rank 0 | heads 0 1 | tokens 0..31 |──┬─▶ | heads 0 1 . . | tokens  0..15 |
                                         └─▶ | heads 0 1 . . | tokens 16..31 |
    rank 1 | heads 2 3 | tokens 0..31 |──┬─▶ | heads . . 2 3 | ...

A plan is a list of pairs of strips of equal size. Every byte of the target's blocks is written by
exactly one of them, or, where the target holds fewer tokens than its blocks have room for, what
belongs to those tokens. Equal layouts give one pair: whole blocks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd

from msgspec import Struct

from tercet.base.errors import must
from tercet.messages.kv import KvLayout, Reach, Strip
from tercet.transfer.layouts import Field, Form, Index, form_of, heads_of


class Shard(Struct, frozen=True, kw_only=True):
    """One rank's blocks of a sequence, in its order."""

    reach: Reach
    units: bytes
    """i4: indices in the rank's arena."""
    lives: bytes = b""
    """u4"""


class RankMove(Struct, frozen=True, kw_only=True):
    """One pair of strips: the bytes of `source`, in its order, are the bytes of `target`."""

    source_rank: int
    source: Strip
    target_rank: int
    target: Strip


class Piece(Struct, frozen=True, array_like=True):
    """The same bytes in a block of either side."""

    source_at: int
    target_at: int
    length: int


class _Same(Struct, frozen=True, kw_only=True):
    """A field on both sides, and which of its heads are taken."""

    name: str
    source: Field
    target: Field
    first_source_head: int
    first_target_head: int
    heads: int


_SAME = (
    ("dtype", "a device would have to convert keys and values from {0} to {1}"),
    ("layers", "they are of models of {0} and {1} layers"),
    ("kv_heads", "they are of models of {0} and {1} heads of keys and values"),
    ("head_dim", "their heads have {0} and {1} numbers"),
)
"""What has to be equal for a copy, and what is said otherwise."""


def refusal(source: KvLayout, target: KvLayout) -> str:
    """Say in one sentence why blocks of one layout cannot be copied into the other; empty: they
    can.
    """
    for name, sentence in _SAME:
        there, here = getattr(source, name), getattr(target, name)
        if there != here:
            return sentence.format(there, here)
    if source != target and form_of(source) is None:
        return f"nobody knows how blocks of type {source.dtype} lie"
    for layout in (source, target):
        more, less = max(layout.tp, layout.kv_heads), min(layout.tp, layout.kv_heads)
        if more % less:
            return f"{layout.kv_heads} heads cannot be shared by {layout.tp} ranks"
    return ""


def mapped_rank(
    *, prefill_tp: int, decode_tp: int, decode_dp: int, decode_dp_rank: int, decode_tp_rank: int
) -> int:
    """Give the prefill rank that a decode rank reads from where several have the same bytes
    (CloudMatrix-Infer, section 4.3.2): decode groups are spread evenly over them.
    """
    must(prefill_tp % decode_tp == 0, f"{prefill_tp} prefill ranks for {decode_tp} decode ranks")
    ratio = prefill_tp // decode_tp
    # floor(dp_rank / (dp / ratio)), without a group size that is no whole number
    group = decode_dp_rank * ratio // decode_dp
    return group * decode_tp + decode_tp_rank


def move_plan(
    sources: Sequence[Shard],
    targets: Sequence[Shard],
    *,
    num_tokens: int,
    group: int = 0,
    groups: int = 1,
) -> list[RankMove]:
    """Give the pairs of strips that copy the first `num_tokens` tokens from all source ranks to
    all target ranks. `group` of `groups` targets (decode groups of data parallelism) reads from
    its own one of the ranks that have the same heads.

    The layouts must be copyable (`refusal`) and the tokens a whole number of the common part of
    both block sizes.
    """
    moves: list[RankMove] = []
    for target_rank, target in enumerate(targets):
        there = _layout(target)
        wanted = heads_of(there)
        for source_rank, heads in _holders(sources, wanted, group=group, groups=groups):
            here = _layout(sources[source_rank])
            must(not refusal(here, there), refusal(here, there))
            for source, strip in _strips(
                sources[source_rank], target, heads=heads, num_tokens=num_tokens
            ):
                moves.append(
                    RankMove(
                        source_rank=source_rank,
                        source=source,
                        target_rank=target_rank,
                        target=strip,
                    )
                )
    return moves


def _layout(shard: Shard) -> KvLayout:
    layout = shard.reach.layout
    must(layout is not None, f"{shard.reach.memory} has no layout")
    return layout or KvLayout(
        dtype="none", block_tokens=1, layers=1, kv_heads=1, head_dim=1, block_bytes=1
    )


def _holders(
    sources: Sequence[Shard], wanted: range, *, group: int, groups: int
) -> Iterator[tuple[int, range]]:
    """Go through (source rank, its heads) that together hold the wanted heads, each once."""
    at = wanted.start
    while at < wanted.stop:
        having = [rank for rank, shard in enumerate(sources) if at in heads_of(_layout(shard))]
        must(having, f"no source rank has head {at}")
        rank = having[len(having) * group // groups]
        end = min(heads_of(_layout(sources[rank])).stop, wanted.stop)
        yield rank, range(at, end)
        at = end


def _strips(
    source: Shard, target: Shard, *, heads: range, num_tokens: int
) -> Iterator[tuple[Strip, Strip]]:
    """Go through pairs of strips between two ranks: one for each piece of a block's part."""
    here, there = _layout(source), _layout(target)
    tokens = gcd(here.block_tokens, there.block_tokens)
    must(num_tokens % tokens == 0, f"{num_tokens} tokens in parts of {tokens}")
    per_source, per_target = here.block_tokens // tokens, there.block_tokens // tokens
    num_parts = num_tokens // tokens
    for units, blocks in ((source.units, per_source), (target.units, per_target)):
        must(num_parts <= blocks * (len(units) // 4), f"no room for {num_tokens} tokens")
    classes: dict[tuple[int, int], list[int]] = {}
    for part in range(num_parts):
        classes.setdefault((part % per_source, part % per_target), []).append(part)
    for (source_part, target_part), parts in classes.items():
        pieces = pieces_between(here, there, heads, tokens=tokens, parts=(source_part, target_part))
        places = [part // per_source for part in parts], [part // per_target for part in parts]
        for piece in pieces:
            yield (
                _strip(source, piece.source_at, piece.length, places[0]),
                _strip(target, piece.target_at, piece.length, places[1]),
            )


def _strip(shard: Shard, at: int, length: int, places: list[int]) -> Strip:
    def chosen(entries: bytes) -> bytes:
        return b"".join(entries[4 * place : 4 * place + 4] for place in places)

    reach = shard.reach
    return Strip(
        reach.memory,
        reach.blocks_at + at,
        _layout(shard).block_bytes,
        length,
        chosen(shard.units),
        chosen(shard.lives),
    )


@lru_cache(maxsize=256)
def pieces_between(
    source: KvLayout, target: KvLayout, heads: range, *, tokens: int, parts: tuple[int, int]
) -> tuple[Piece, ...]:
    """Give the longest pieces that are the same in a block of either side: of these heads of the
    model, `tokens` tokens from part `parts[0]` of the source's block and `parts[1]` of the
    target's on.
    """
    whole = heads == heads_of(source) == heads_of(target)
    if whole and source.block_tokens == target.block_tokens and source.dtype == target.dtype:
        return (Piece(0, 0, source.block_bytes),)
    forms = form_of(source), form_of(target)
    must(forms[0] and forms[1], f"nobody knows how blocks of type {source.dtype} lie")
    found: list[Piece] = []
    for one in _fields(forms, source, target, heads):
        found += _pieces(one, tokens=tokens, parts=parts)
    return tuple(_merged(found))


def _fields(
    forms: tuple[Form | None, Form | None], source: KvLayout, target: KvLayout, heads: range
) -> Iterator[_Same]:
    if forms[0] is None or forms[1] is None:
        return
    for there, here in zip(forms[0].fields, forms[1].fields, strict=True):
        must(there.name == here.name, f"{there.name} and {here.name} are no pair")
        yield _Same(
            name=there.name,
            source=there,
            target=here,
            first_source_head=heads.start - heads_of(source).start,
            first_target_head=heads.start - heads_of(target).start,
            heads=len(heads),
        )


def _pieces(one: _Same, *, tokens: int, parts: tuple[int, int]) -> list[Piece]:
    """Of one field, number by number for one head of one layer, then the same for all: layers
    and heads lie at equal distances.
    """
    first = one.source.offset(0, 0, 0, 0), one.target.offset(0, 0, 0, 0)
    item, dims = one.source.item_bytes, one.source.count(Index.DIM)
    single = [
        Piece(
            one.source.offset(0, 0, parts[0] * tokens + token, dim),
            one.target.offset(0, 0, parts[1] * tokens + token, dim),
            item,
        )
        for token in range(tokens)
        for dim in range(dims)
    ]
    pieces = _merged(single)
    found: list[Piece] = []
    for layer in range(one.source.count(Index.LAYER)):
        for head in range(one.heads):
            shift = (
                one.source.offset(layer, one.first_source_head + head, 0, 0) - first[0],
                one.target.offset(layer, one.first_target_head + head, 0, 0) - first[1],
            )
            found += [
                Piece(piece.source_at + shift[0], piece.target_at + shift[1], piece.length)
                for piece in pieces
            ]
    return found


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Join what lies side by side on both sides."""
    merged: list[Piece] = []
    for piece in sorted(pieces, key=_place):
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.source_at + last.length == piece.source_at
            and last.target_at + last.length == piece.target_at
        ):
            merged[-1] = Piece(last.source_at, last.target_at, last.length + piece.length)
        else:
            merged.append(piece)
    return merged


def _place(piece: Piece) -> tuple[int, int]:
    return piece.source_at, piece.target_at
