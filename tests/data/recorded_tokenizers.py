"""Tokenizers whose behaviour was recorded from llama.cpp, by name."""

import json
import lzma
from functools import cache
from pathlib import Path

import gguf

from tercet.text.codec import Codec
from tercet.text.load import load_codec

RECORDED = Path(__file__).parent / "tokenizers"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))


@cache
def metadata(name: str) -> dict[str, object]:
    """What a reader of GGUF files hands to `load_codec`."""
    kept = RECORDED / f"{name}.vocabulary.json.xz"
    if kept.exists():
        return json.loads(lzma.decompress(kept.read_bytes()))
    fields = gguf.GGUFReader(RECORDED / f"{name}.gguf").fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


@cache
def codec(name: str) -> Codec:
    return load_codec("bytes") if name == "bytes" else load_codec(metadata(name))
