"""One door to all sources of tokenizers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tercet.text.bytes_source import read_bytes
from tercet.text.codec import Codec, Whole
from tercet.text.folder_source import read_folder
from tercet.text.gguf_source import read_gguf
from tercet.text.library import parse_tokenizer
from tercet.text.vocabulary import Vocabulary

Source = Mapping[str, object] | Path | Literal["bytes"]
"""Metadata of a GGUF file (`tokenizer.*`), a folder in Hugging Face layout, or bytes."""


def load_codec(source: Source) -> Codec:
    """The tokenizer of that source; `Invalid` says what is wrong or not supported."""
    if isinstance(source, Path):
        vocabulary, tokenizer = read_folder(source)
        return Codec(vocabulary, Whole(tokenizer))
    return codec_of(read_bytes() if source == "bytes" else read_gguf(source))


def codec_of(vocabulary: Vocabulary) -> Codec:
    """The codec of a vocabulary that was read with its definition."""
    tokenizer = parse_tokenizer(vocabulary.definition, source="tokenizer.ggml")
    return Codec(vocabulary, Whole(tokenizer))
