"""A byte-level vocabulary as arrays in one file: mapped in no time, looked up where it is needed.

To build the whole of a tokenizer takes tenths of a second, and a short text needs little of it:
byte-level BPE only ever joins what lies side by side in the text, so a tokenizer with just those
tokens and merges that spell parts of the text cuts it exactly as the whole one does.

    text ──▶ hashes of all its parts ──look up──▶ tokens ──▶ merges that give them ──▶ Tokenizer

    | TERCETVO | version, crc, length | head (MessagePack) | arrays, each at a multiple of 8 |

    piece_ends[V]  pieces  hashes[K] (ascending)  ids[K]  left[M]  right[M]  given_ends[V]  given[M]

Merge m, in the order of merging, joins tokens left[m] and right[m]; given[given_ends[t-1] :
given_ends[t]] are the merges whose result is t. A hash that is hit by chance adds a token that
changes nothing.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, overload

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tercet.text.bytelevel import spell
from tercet.text.codec import Codec, Whole
from tercet.text.library import parse_tokenizer
from tercet.text.vocabulary import Vocabulary

MAGIC = b"TERCETVO"
VERSION = 1
SHORT_BYTES = 2048
"""Texts up to this long get a tokenizer of their own; for longer ones the whole is built, once."""
UNSPELLED_MAX = 1 << 12
"""Tokens that are always there: those that the text's bytes do not spell."""
_PREFIX = struct.Struct("<8sIII")
_UNIT = 8
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_SPLITS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
U64 = NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)
_TYPES = {"piece_ends": "<u4", "pieces": "<u1", "hashes": "<u8", "ids": "<i4", "left": "<i4",
          "right": "<i4", "given_ends": "<u4", "given": "<i4"}  # fmt: skip


class _Head(Struct, frozen=True, kw_only=True):
    key: str
    skeleton: bytes
    """The definition in JSON, without vocabulary and merges."""
    unspelled: dict[str, int]
    lengths: tuple[int, ...]
    """Of all spelled tokens, in bytes, ascending."""
    special_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    templates: dict[str, str]
    named: dict[str, str]
    places: dict[str, tuple[int, int]]
    """Of each array, from the end of the head: offset, count."""


class Pieces(Sequence[bytes]):
    """The bytes of tokens by id, taken out of one array."""

    def __init__(self, data: bytes | memoryview, ends: NDArray[np.uint32]) -> None:
        self._data = data
        self._ends = ends

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if not 0 <= index < len(self._ends):
            raise IndexError(index)
        start = int(self._ends[index - 1]) if index else 0
        return bytes(self._data[start : int(self._ends[index])])

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def longest(self) -> int:
        """Bytes of the longest piece."""
        return int(np.diff(self._ends, prepend=np.uint32(0)).max(initial=0))


def load_compact(path: Path, key: str) -> Codec | None:
    """The codec whose vocabulary was kept under this key; None if there is none that is whole."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if len(data) < _PREFIX.size:
        return None
    magic, version, crc, length = _PREFIX.unpack_from(data)
    if magic != MAGIC or version != VERSION or zlib.crc32(memoryview(data)[_PREFIX.size :]) != crc:
        return None
    head = msgspec.msgpack.decode(data[_PREFIX.size : _PREFIX.size + length], type=_Head)
    if head.key != key:
        return None
    start = _aligned(_PREFIX.size + length)
    arrays = {
        name: np.frombuffer(data, _TYPES[name], count, start + offset)
        for name, (offset, count) in head.places.items()
    }
    pieces = Pieces(arrays["pieces"].data, arrays["piece_ends"])
    vocabulary = Vocabulary(
        definition="",
        pieces=pieces,
        special_ids=frozenset(head.special_ids),
        end_ids=head.end_ids,
        bos_id=head.bos_id,
        eos_id=head.eos_id,
        templates=head.templates,
        named=head.named,
        longest=pieces.longest,
    )
    return Codec(vocabulary, _Compact(head, arrays, pieces))


def keep_compact(path: Path, key: str, vocabulary: Vocabulary) -> None:
    """The vocabulary is kept, if it is one that can be; a folder that cannot be written is no error
    here.
    """
    data = _encode(key, vocabulary)
    if data is None:
        return
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()


class _Compact:
    """Implements `codec.Tokenizers` over the arrays."""

    def __init__(
        self, head: _Head, arrays: dict[str, NDArray[np.generic]], pieces: Sequence[bytes]
    ) -> None:
        self._head = head
        self._arrays = arrays
        self._pieces = pieces
        self._all: Whole | None = None

    def of(self, text: str, *, special: bool) -> Tokenizer:
        """One that cuts this text as the whole does."""
        data = text.encode()
        if self._all is not None or len(data) > SHORT_BYTES:
            return self._everything().of(text, special=special)
        tokenizer = self._build(self._spelled_in(np.frombuffer(data, np.uint8)))
        tokenizer.encode_special_tokens = not special
        return tokenizer

    def whole(self) -> Tokenizer:
        return self._everything().whole()

    def _everything(self) -> Whole:
        """All of it; made when it is first asked for."""
        if self._all is None:
            self._all = Whole(self._build(self._arrays["ids"]))
        return self._all

    def _spelled_in(self, data: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Ids, ascending, of all tokens whose bytes are a part of the data."""
        hashes, ids = self._arrays["hashes"], self._arrays["ids"]
        found = [ids[:0]]
        for length in self._head.lengths:
            if length > len(data):
                break
            starts = np.arange(len(data) - length + 1)
            wanted = _hashes(data, starts, starts + length)
            places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
            found.append(ids[places[hashes[places] == wanted]])
        return _distinct(np.concatenate(found))

    def _build(self, ids: NDArray[np.generic]) -> Tokenizer:
        arrays, pieces = self._arrays, self._pieces
        texts = {int(index): spell(pieces[index]) for index in ids.tolist()}
        texts |= {index: text for text, index in self._head.unspelled.items()}
        ends, given = arrays["given_ends"], arrays["given"]
        merges = [given[int(ends[index - 1]) if index else 0 : int(ends[index])] for index in texts]
        ranks = np.sort(np.concatenate([given[:0], *merges]))
        pairs = zip(arrays["left"][ranks].tolist(), arrays["right"][ranks].tolist(), strict=True)
        definition = msgspec.json.decode(self._head.skeleton)
        definition["model"]["vocab"] = {text: index for index, text in texts.items()}
        definition["model"]["merges"] = [
            [texts[left], texts[right]] for left, right in pairs if left in texts and right in texts
        ]
        spelled = msgspec.json.encode(definition).decode()
        return parse_tokenizer(spelled, source="a compact vocabulary")


def _encode(key: str, vocabulary: Vocabulary) -> bytes | None:
    """The file's bytes; None for a vocabulary that is no plain byte-level BPE."""
    definition = msgspec.json.decode(vocabulary.definition) if vocabulary.definition else {}
    if not _is_plain(definition) or vocabulary.strips_space:
        return None
    vocab: dict[str, int] = definition["model"]["vocab"]
    merges: list[list[str]] = definition["model"]["merges"]
    pieces = vocabulary.pieces
    # Added tokens are always there: the library would give those that are not other ids.
    added = {token["content"] for token in definition["added_tokens"]}
    spelled = {
        index
        for text, index in vocab.items()
        if text and text not in added and spell(pieces[index]) == text
    }
    unspelled = {text: index for text, index in vocab.items() if index not in spelled}
    ids = np.array(sorted(spelled), np.int32)
    blob = np.frombuffer(b"".join(pieces), np.uint8)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    hashes = _hashes(blob, starts[ids], ends[ids])
    order = np.argsort(hashes)
    results = np.array([vocab.get(left + right, -1) for left, right in merges], np.int64)
    fits = len(_distinct(hashes)) == len(hashes) and (results >= 0).all()
    if not fits or len(unspelled) > UNSPELLED_MAX or not len(ids):
        return None
    counts = np.bincount(results, minlength=len(pieces))
    arrays: dict[str, NDArray[np.generic]] = {
        "piece_ends": ends,
        "pieces": blob,
        "hashes": hashes[order],
        "ids": ids[order],
        "left": np.array([vocab[left] for left, _ in merges], np.int32),
        "right": np.array([vocab[right] for _, right in merges], np.int32),
        "given_ends": np.cumsum(counts),
        "given": np.argsort(results, kind="stable"),
    }
    definition["model"] |= {"vocab": {}, "merges": []}
    head = _Head(
        key=key,
        skeleton=msgspec.json.encode(definition),
        unspelled=unspelled,
        lengths=tuple(sorted({len(pieces[index]) for index in spelled})),
        special_ids=tuple(sorted(vocabulary.special_ids)),
        end_ids=vocabulary.end_ids,
        bos_id=vocabulary.bos_id,
        eos_id=vocabulary.eos_id,
        templates=dict(vocabulary.templates),
        named=dict(vocabulary.named),
        places={},
    )
    return _lay(head, arrays)


def _is_plain(definition: dict[str, object]) -> bool:
    """Whether words are cut out of the text as it is, spelled byte by byte, and then merged."""
    model, pre = definition.get("model"), definition.get("pre_tokenizer")
    if not isinstance(model, dict) or not isinstance(pre, dict) or definition.get("normalizer"):
        return False
    steps = pre.get("pretokenizers") or [pre]
    last = steps[-1]
    return (
        model.get("type") == "BPE"
        and not model.get("byte_fallback")
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and all(last.get(name) == value for name, value in _SPLITS.items())
        and all(step.get("type") == "Split" for step in steps[:-1])
    )


def _lay(head: _Head, arrays: dict[str, NDArray[np.generic]]) -> bytes:
    body = bytearray()
    places = {}
    for name, array in arrays.items():
        places[name] = len(body), len(array)
        body += array.astype(_TYPES[name]).tobytes()
        body += bytes(-len(body) % _UNIT)
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(head, places=places))
    size = _PREFIX.size + len(encoded)
    rest = encoded + bytes(_aligned(size) - size) + bytes(body)
    return _PREFIX.pack(MAGIC, VERSION, zlib.crc32(rest), len(encoded)) + rest


def _hashes(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> U64:
    """Of each data[start:end]: the sum of (byte + 1) x base^place, modulo 2^64."""
    with np.errstate(over="ignore"):
        powers = _powers(_BASE, len(data))
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers, out=sums[1:])
        hashes: U64 = (sums[ends] - sums[starts]) * _powers(_INVERSE, len(data) + 1)[starts]
        return hashes


def _distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The values, ascending, each once (`np.unique` loads a fifth of NumPy first)."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def _powers(base: int, count: int) -> U64:
    """base^0, base^1 ... modulo 2^64."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def _aligned(place: int) -> int:
    return -(-place // _UNIT) * _UNIT
