"""Reads a tokenizer from the metadata of a GGUF file (`tokenizer.ggml.*`).

Two models are served: `gpt2`, byte-level BPE with one of the kinds of `pretokenizers`, and
`llama`, SentencePiece with scores. Token types and what follows from them (which tokens are
found in text, which end a text) are as llama.cpp has them (`src/llama-vocab.cpp`).
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from tercet.base.errors import Invalid
from tercet.text.bytelevel import unspell
from tercet.text.definition import AddedToken, Definition, byte_level, split
from tercet.text.pretokenizers import pre_tokenizer
from tercet.text.sentencepiece import merges_from_scores
from tercet.text.vocabulary import BYTE_TOKENS, Vocabulary

_PREFIX = "tokenizer.ggml."
END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<end_of_turn>",
        "</s>",
        "<EOT>",
    }
)
"""Tokens that end a text wherever they are: metadata seldom names more than one of them."""
_ROLES = ("bos", "eos", "unknown", "padding")
_ROLE_VARIABLES = {"unknown": "unk_token", "padding": "pad_token"}


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, values of GGUF."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def read_gguf(metadata: Mapping[str, object]) -> Vocabulary:
    """The tokenizer that the metadata describes, or `Invalid` naming the key that is at fault."""
    model = _text(metadata, "model")
    if model not in {"gpt2", "llama"}:
        raise Invalid(
            f"tokenizer.ggml.model is {model!r}; supported models are gpt2 (byte-level BPE) "
            "and llama (SentencePiece)",
            code="unsupported_tokenizer",
            parameter="tokenizer.ggml.model",
        )
    source = _Source(metadata)
    return source.byte_level() if model == "gpt2" else source.sentencepiece()


class _Source:
    """The lists of one file, checked; what both models have in common."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        tokens = _strings(metadata, "tokens")
        self.tokens = [text or f"[EMPTY_{index}]" for index, text in enumerate(tokens)]
        self.types = self._types()
        self.vocab = dict(zip(self.tokens, range(len(self.tokens)), strict=True))
        self.roles = {role: self._token_id(f"{role}_token_id") for role in _ROLES}

    def byte_level(self) -> Vocabulary:
        kind = pre_tokenizer(_text(self._metadata, "pre", default="default"))
        normal, byte = int(TokenType.NORMAL), int(TokenType.BYTE)
        pieces = [
            unspell(text)
            if kind_of == normal
            else (_byte(text) if kind_of == byte else self._plain(text, kind_of))
            for text, kind_of in zip(self.tokens, self.types, strict=True)
        ]
        definition = Definition(
            vocab=self.vocab,
            merges=self._merges(),
            added=self._added(),
            pre_tokenizers=[*map(split, kind.expressions), byte_level()],
            ignores_merges=kind.ignores_merges,
            before=self._around("bos", default=kind.adds_bos),
            after=self._around("eos", default=False),
        )
        return self._vocabulary(definition, pieces, strips_space=False)

    def sentencepiece(self) -> Vocabulary:
        scores = self._scores()
        prefix = self._flag("add_space_prefix", default=True)
        normal, byte = int(TokenType.NORMAL), int(TokenType.BYTE)
        pieces = [
            text.replace("▁", " ").encode()
            if kind_of == normal
            else (_byte(text) if kind_of == byte else self._plain(text, kind_of))
            for text, kind_of in zip(self.tokens, self.types, strict=True)
        ]
        steps: list[Mapping[str, object]] = [
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        ]
        if prefix:
            steps.insert(0, {"type": "Prepend", "prepend": "▁"})
        unknown = self.roles["unknown"]
        definition = Definition(
            vocab=self.vocab,
            merges=merges_from_scores(self.tokens, scores, byte_tokens=BYTE_TOKENS),
            added=self._added(),
            normalizer={"type": "Sequence", "normalizers": steps},
            unknown=None if unknown is None else self.tokens[unknown],
            byte_fallback=True,
            before=self._around("bos", default=True),
            after=self._around("eos", default=False),
        )
        return self._vocabulary(definition, pieces, strips_space=prefix)

    def _vocabulary(
        self, definition: Definition, pieces: list[bytes], *, strips_space: bool
    ) -> Vocabulary:
        special = {int(TokenType.CONTROL), int(TokenType.UNKNOWN)}
        end_ids = self._end_ids()
        return Vocabulary(
            definition=definition.to_json(),
            pieces=tuple(pieces),
            special_ids=frozenset(
                [index for index, kind in enumerate(self.types) if kind in special]
            ),
            end_ids=end_ids,
            bos_id=self.roles["bos"],
            eos_id=self.roles["eos"],
            strips_space=strips_space,
            templates=self._templates(),
            named={
                _ROLE_VARIABLES.get(role, f"{role}_token"): self.tokens[index]
                for role, index in self.roles.items()
                if index is not None
            },
        )

    def _plain(self, text: str, kind: int) -> bytes:
        shown = {TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED}
        return text.encode() if kind in shown else b""

    def _types(self) -> list[int]:
        given = self._metadata.get(_PREFIX + "token_type")
        if given is None:
            types = [int(TokenType.NORMAL)] * len(self.tokens)
        else:
            types = _integers(given, "token_type", at_least=len(self.tokens))
        for index, text in enumerate(self.tokens):
            if text in END_TEXTS:
                types[index] = int(TokenType.CONTROL)
        return types

    def _added(self) -> list[AddedToken]:
        found = {TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED}
        user = int(TokenType.USER_DEFINED)
        return [
            AddedToken(id=index, content=self.tokens[index], special=kind != user)
            for index, kind in enumerate(self.types)
            if kind in found
        ]

    def _end_ids(self) -> tuple[int, ...]:
        ends = [self.roles["eos"], self._token_id("eot_token_id"), self._token_id("eom_token_id")]
        ends += [self.vocab[text] for text in sorted(END_TEXTS) if text in self.vocab]
        return tuple(dict.fromkeys(index for index in ends if index is not None))

    def _merges(self) -> list[list[str]]:
        merges = [_pair(line) for line in dict.fromkeys(_strings(self._metadata, "merges"))]
        for merge in merges:
            if len(merge) != 2:
                raise _wrong("merges", f"{merge[0]!r} is no pair of tokens")
        return merges

    def _scores(self) -> list[float]:
        given = self._metadata.get(_PREFIX + "scores")
        if not isinstance(given, Sequence) or len(given) < len(self.tokens):
            raise _wrong("scores", f"a number for each of the {len(self.tokens)} tokens is needed")
        return [float(score) for score in given]

    def _around(self, role: str, *, default: bool) -> tuple[str, int] | None:
        index = self.roles[role]
        if index is None or not self._flag(f"add_{role}_token", default=default):
            return None
        return self.tokens[index], index

    def _flag(self, key: str, *, default: bool) -> bool:
        return bool(self._metadata.get(_PREFIX + key, default))

    def _token_id(self, key: str) -> int | None:
        index = self._metadata.get(_PREFIX + key)
        if not isinstance(index, int) or not 0 <= index < len(self.tokens):
            return None
        return index

    def _templates(self) -> dict[str, str]:
        root = "tokenizer.chat_template"
        templates = {
            key[len(root) + 1 :]: value
            for key, value in self._metadata.items()
            if key.startswith(f"{root}.") and isinstance(value, str)
        }
        default = self._metadata.get(root)
        if isinstance(default, str):
            templates["default"] = default
        return templates


def _pair(line: str) -> list[str]:
    if not line.startswith(" "):
        return line.split(" ", 1)
    cut = line.find(" ", 1)
    return [line] if cut < 0 else [line[:cut], line[cut + 1 :]]


def _byte(text: str) -> bytes:
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        raise _wrong("tokens", f"the byte token {text!r} is not spelled <0xNN>") from None


def _text(metadata: Mapping[str, object], key: str, *, default: str | None = None) -> str:
    value = metadata.get(_PREFIX + key, default)
    if not isinstance(value, str):
        raise _wrong(key, f"it is {value!r}, expected a text")
    return value


def _strings(metadata: Mapping[str, object], key: str) -> Sequence[str]:
    value = metadata.get(_PREFIX + key)
    if not isinstance(value, Sequence) or not value or not isinstance(value[0], str):
        raise _wrong(key, "a list of texts is needed")
    return value


def _integers(value: object, key: str, *, at_least: int) -> list[int]:
    if not isinstance(value, Sequence) or len(value) < at_least:
        raise _wrong(key, f"a number for each of the {at_least} tokens is needed")
    return [int(number) for number in value]


def _wrong(key: str, story: str) -> Invalid:
    name = _PREFIX + key
    return Invalid(f"{name}: {story}", code="invalid_tokenizer", parameter=name)
