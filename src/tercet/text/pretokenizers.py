"""How byte-level vocabularies cut text into words before merging, by the names that GGUF uses.

A kind is a list of expressions, applied one after the other to the pieces that the former left;
matches and the gaps between them are both pieces. Expressions follow llama.cpp
(`src/llama-vocab.cpp`), in the dialect of the `tokenizers` library (Oniguruma).
"""

from dataclasses import dataclass

from tercet.base.errors import Invalid

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_NOT_LOWER, _NOT_UPPER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    expressions: tuple[str, ...]
    ignores_merges: bool = False
    """A word that is a token is taken whole, whatever the merges would make of it."""
    adds_bos: bool = False
    """The default where the metadata is silent."""


_llama3 = PreTokenizer(
    expressions=(rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}",),
    ignores_merges=True,
    adds_bos=True,
)
_smaug = PreTokenizer(expressions=_llama3.expressions)
_qwen2 = PreTokenizer(
    expressions=(rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_SYMBOLS}|{_SPACES}",),
)
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_LOWER}*{_NOT_UPPER}+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_NOT_LOWER}+{_NOT_UPPER}*"
)
_tekken = PreTokenizer(
    expressions=(rf"{_CASED}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",),
    ignores_merges=True,
    adds_bos=True,
)
_smollm = PreTokenizer(expressions=(r"\p{N}", _GPT2))
_gpt2 = PreTokenizer(expressions=(_GPT2,))
_default = PreTokenizer(
    expressions=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
)

KINDS: dict[str, PreTokenizer] = {
    "default": _default,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "llama-bpe": _llama3,
    "falcon3": _llama3,
    "pixtral": _llama3,
    "smaug-bpe": _smaug,
    "tekken": _tekken,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
    "megrez": _qwen2,
}
"""`tokenizer.ggml.pre` -> kind: those that Llama, SmolLM2, Mistral and Qwen models carry."""


def pre_tokenizer(name: str) -> PreTokenizer:
    """The kind of that name; one that is not known is refused, a guess would be wrong text."""
    if name not in KINDS:
        raise Invalid(
            f"tokenizer.ggml.pre is {name!r}; supported kinds are {', '.join(sorted(KINDS))}",
            code="unsupported_tokenizer",
            parameter="tokenizer.ggml.pre",
        )
    return KINDS[name]
