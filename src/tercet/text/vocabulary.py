"""What a tokenizer's source says, whatever its format: the seam between readers and `Codec`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""How SentencePiece vocabularies spell the tokens of single bytes."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens as bytes, and which of them mean more than their text."""

    definition: str
    """The tokenizer in the JSON form that the `tokenizers` library reads."""
    pieces: Sequence[bytes]
    """Token id -> its bytes; empty for ids that have no text (unused, padding)."""
    special_ids: frozenset[int]
    """Control tokens: found in text when asked for, left out of text when skipped."""
    end_ids: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    strips_space: bool = False
    """The first space of a text is the tokenizer's own (SentencePiece's dummy prefix)."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Chat templates by name; `default` is the one that is used."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Texts of tokens by role (`bos_token`, `eos_token`, ...): variables of the templates."""
    longest: int | None = None
    """Bytes of the longest piece, where that is known already."""

    def shown(self) -> Sequence[bytes]:
        """Token id -> its bytes, without those of control tokens."""
        if isinstance(self.pieces, tuple):
            special = self.special_ids
            return tuple(
                b"" if index in special else piece for index, piece in enumerate(self.pieces)
            )
        return _Shown(self.pieces, self.special_ids)


class _Shown(Sequence[bytes]):
    """The same for pieces that nobody has laid out as a tuple."""

    def __init__(self, pieces: Sequence[bytes], special: frozenset[int]) -> None:
        self._pieces = pieces
        self._special = special

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return b"" if index in self._special else self._pieces[index]

    def __len__(self) -> int:
        return len(self._pieces)
