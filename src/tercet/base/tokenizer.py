"""Where a model's tokenizer and chat template come from: what `models` finds and `text` builds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

TokenizerSource: TypeAlias = Mapping[str, object] | Path | Literal["bytes"]
"""A GGUF file's metadata as plain values under their keys (`tokenizer.ggml.model`, ...); a folder
in Hugging Face layout (tokenizer.json, ...); or plain bytes: ids 0-255 are the bytes of UTF-8,
then come four control tokens, of which `BYTES_END_IDS` end a text."""
BYTES_VOCAB = 260
BYTES_END_IDS = (257, 259)
