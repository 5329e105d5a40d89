"""Where a model's tokenizer and chat template come from: what `models` finds and `text` builds."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

BYTES_END_ID = 256
"""The id that ends a text in a tokenizer of plain bytes."""
BYTES_VOCAB_MIN = 260
"""The smallest vocabulary of a tokenizer of plain bytes: bytes, the end, and room for specials."""


class GgufTokenizer(Struct, frozen=True, kw_only=True):
    """A GGUF file's metadata, as plain values under their keys (`tokenizer.ggml.model`, ...)."""

    metadata: Mapping[str, object]


class FolderTokenizer(Struct, frozen=True, kw_only=True):
    """A folder in Hugging Face layout: tokenizer.json, tokenizer_config.json, templates."""

    path: str


class BytesTokenizer(Struct, frozen=True, kw_only=True):
    """Ids 0-255 are the bytes of UTF-8, `BYTES_END_ID` ends a text, the rest mean nothing."""

    vocab: int


TokenizerSource: TypeAlias = GgufTokenizer | FolderTokenizer | BytesTokenizer
