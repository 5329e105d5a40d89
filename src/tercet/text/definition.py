"""Writes tokenizers in the JSON form of the `tokenizers` library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that is found in raw text before anything else happens to it."""

    id: int
    content: str
    special: bool


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A BPE tokenizer; what is not said does not happen."""

    vocab: Mapping[str, int]
    merges: Sequence[tuple[str, str] | list[str]]
    added: Sequence[AddedToken] = ()
    normalizer: Mapping[str, object] | None = None
    pre_tokenizers: Sequence[Mapping[str, object]] = ()
    unknown: str | None = None
    byte_fallback: bool = False
    ignores_merges: bool = False
    before: tuple[str, int] | None = None
    """Token (text, id) put before a whole text."""
    after: tuple[str, int] | None = None

    def to_json(self) -> str:
        """The definition as text; `tokenizers.Tokenizer.from_str` reads it."""
        data = msgspec.json.encode(
            {
                "version": "1.0",
                "added_tokens": [_added(token) for token in self.added],
                "normalizer": self.normalizer,
                "pre_tokenizer": self._pre_tokenizer(),
                "post_processor": self._post_processor(),
                "decoder": None,
                "model": {
                    "type": "BPE",
                    "unk_token": self.unknown,
                    "fuse_unk": False,
                    "byte_fallback": self.byte_fallback,
                    "ignore_merges": self.ignores_merges,
                    "vocab": self.vocab,
                    "merges": self.merges,
                },
            }
        )
        return data.decode()

    def _pre_tokenizer(self) -> Mapping[str, object] | None:
        if not self.pre_tokenizers:
            return None
        return {"type": "Sequence", "pretokenizers": list(self.pre_tokenizers)}

    def _post_processor(self) -> Mapping[str, object] | None:
        around = [token for token in (self.before, self.after) if token is not None]
        if not around:
            return None
        text = {"Sequence": {"id": "A", "type_id": 0}}
        single = [*_template(self.before), text, *_template(self.after)]
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                name: {"id": name, "ids": [token], "tokens": [name]} for name, token in around
            },
        }


def split(expression: str) -> Mapping[str, object]:
    """Matches of the expression, and the gaps between them, become words."""
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Isolated",
        "invert": False,
    }


def byte_level() -> Mapping[str, object]:
    """Words are spelled in the byte-level alphabet, and cut no further."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }


def _added(token: AddedToken) -> Mapping[str, object]:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": token.special,
    }


def _template(token: tuple[str, int] | None) -> list[Mapping[str, object]]:
    return [] if token is None else [{"SpecialToken": {"id": token[0], "type_id": 0}}]
