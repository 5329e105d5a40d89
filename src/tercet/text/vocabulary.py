"""What a tokenizer's source says, whatever its format: the seam between readers and `Codec`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""How SentencePiece vocabularies spell the tokens of single bytes."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens as bytes, and which of them mean more than their text."""

    definition: str
    """The tokenizer in the JSON form that the `tokenizers` library reads."""
    pieces: tuple[bytes, ...]
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
