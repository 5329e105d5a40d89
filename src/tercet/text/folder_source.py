"""Reads a tokenizer from a folder in Hugging Face layout.

`tokenizer.json` says how text is cut; `tokenizer_config.json`, `special_tokens_map.json`,
`generation_config.json` and `chat_template.jinja` say what its tokens mean.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from tercet.base.errors import Invalid
from tercet.text.bytelevel import unspell
from tercet.text.library import parse_tokenizer
from tercet.text.vocabulary import BYTE_TOKENS, Vocabulary

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_folder(folder: Path) -> tuple[Vocabulary, Tokenizer]:
    """What the folder's tokenizer is, or `Invalid` naming the file that is at fault."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        others = [
            name
            for name in ("tokenizer.model", "vocab.json", "tekken.json")
            if (folder / name).is_file()
        ]
        has = f"; {', '.join(others)} alone is not supported" if others else ""
        raise _wrong(path, f"the file is missing{has}")
    tokenizer = parse_tokenizer(_read(path), source=str(path))
    config = _object(folder / "tokenizer_config.json")
    named = _named_tokens(_object(folder / "special_tokens_map.json") | config)
    _add_missing(tokenizer, config, path=folder / "tokenizer_config.json")
    _mark_special(tokenizer, named)
    _apply_bos(tokenizer, config, named)
    return _vocabulary(tokenizer, folder, named, config), tokenizer


def _vocabulary(
    tokenizer: Tokenizer, folder: Path, named: Mapping[str, str], config: Mapping[str, object]
) -> Vocabulary:
    added = tokenizer.get_added_tokens_decoder()
    form = _decoder_form(tokenizer, folder / "tokenizer.json")
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    pieces = [b""] * (max([*vocab.values(), *added], default=-1) + 1)
    for text, index in vocab.items():
        pieces[index] = form.piece(text)
    for index, token in added.items():
        pieces[index] = token.content.encode()
    special = frozenset(index for index, token in added.items() if token.special)
    eos = tokenizer.token_to_id(named["eos_token"]) if "eos_token" in named else None
    bos = tokenizer.token_to_id(named["bos_token"]) if "bos_token" in named else None
    return Vocabulary(
        definition="",
        pieces=tuple(pieces),
        special_ids=special,
        end_ids=_end_ids(_object(folder / "generation_config.json"), eos),
        bos_id=bos,
        eos_id=eos,
        strips_space=form.strips_space,
        templates=_templates(folder, config),
        named=named,
    )


class _Form:
    """How the texts of a vocabulary stand for bytes."""

    def __init__(self, *, byte_level: bool, byte_fallback: bool, strips_space: bool) -> None:
        self._byte_level = byte_level
        self._bytes = (
            {text: bytes([byte]) for byte, text in enumerate(BYTE_TOKENS)} if byte_fallback else {}
        )
        self.strips_space = strips_space

    def piece(self, text: str) -> bytes:
        if self._byte_level:
            return unspell(text)
        return self._bytes.get(text) or text.replace("▁", " ").encode()


def _decoder_form(tokenizer: Tokenizer, path: Path) -> _Form:
    decoder = tokenizer.decoder
    state = {} if decoder is None else json.loads(decoder.__getstate__())
    steps = state.get("decoders", [state])
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return _Form(byte_level=True, byte_fallback=False, strips_space=False)
    spaces = [
        step
        for step in steps
        if step.get("type") == "Metaspace"
        or (step.get("type") == "Replace" and step.get("content") == " ")
    ]
    if not spaces:
        raise _wrong(
            path,
            f"its decoder is {' + '.join(map(str, kinds))}; supported are ByteLevel, and "
            "SentencePiece forms (Metaspace, or Replace with ByteFallback)",
        )
    strips = any(
        (step.get("type") == "Strip" and step.get("content") == " " and step.get("start", 0) > 0)
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in steps
    )
    return _Form(byte_level=False, byte_fallback="ByteFallback" in kinds, strips_space=strips)


def _named_tokens(config: Mapping[str, object]) -> dict[str, str]:
    named = {}
    for role in _ROLES:
        token = config.get(role)
        if isinstance(token, Mapping):
            token = token.get("content")
        if isinstance(token, str) and token:
            named[role] = token
    return named


def _add_missing(tokenizer: Tokenizer, config: Mapping[str, object], *, path: Path) -> None:
    """Tokens that only `tokenizer_config.json` lists; their ids must be what comes next."""
    listed = config.get("added_tokens_decoder")
    if not isinstance(listed, Mapping):
        return
    for key in sorted(listed, key=int):
        entry = listed[key]
        if tokenizer.id_to_token(int(key)) == entry["content"]:
            continue
        flags = {
            name: bool(entry.get(name, False))
            for name in ("lstrip", "rstrip", "single_word", "normalized", "special")
        }
        tokenizer.add_tokens([AddedToken(entry["content"], **flags)])
        if tokenizer.token_to_id(entry["content"]) != int(key):
            raise _wrong(path, f"token {key} ({entry['content']!r}) contradicts tokenizer.json")


def _mark_special(tokenizer: Tokenizer, named: Mapping[str, str]) -> None:
    """Tokens with a role are control tokens, even if `tokenizer.json` does not say so."""
    known = {
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    }
    missing = [
        AddedToken(text, special=True, normalized=False)
        for text in dict.fromkeys(named.values())
        if text not in known and tokenizer.token_to_id(text) is not None
    ]
    if missing:
        tokenizer.add_special_tokens(missing)


def _apply_bos(
    tokenizer: Tokenizer, config: Mapping[str, object], named: Mapping[str, str]
) -> None:
    """In Llama's classes `add_bos_token` overrules the post-processor, as in transformers."""
    wanted = config.get("add_bos_token")
    kind = config.get("tokenizer_class")
    if not isinstance(wanted, bool) or not isinstance(kind, str) or not kind.startswith("Llama"):
        return
    around = {
        role: named[role]
        for role, flag in (("bos_token", wanted), ("eos_token", config.get("add_eos_token")))
        if flag and role in named
    }
    before, after = around.get("bos_token"), around.get("eos_token")
    special = [(text, tokenizer.token_to_id(text)) for text in dict.fromkeys(around.values())]
    single = [*([before] if before else []), "$A", *([after] if after else [])]
    tokenizer.post_processor = TemplateProcessing(
        single=single, pair=[*single, "$B:1"], special_tokens=special
    )


def _end_ids(generation: Mapping[str, object], eos: int | None) -> tuple[int, ...]:
    given = generation.get("eos_token_id")
    ends = given if isinstance(given, list) else [given]
    ids = [index for index in [eos, *ends] if isinstance(index, int)]
    return tuple(dict.fromkeys(ids))


def _templates(folder: Path, config: Mapping[str, object]) -> dict[str, str]:
    templates: dict[str, str] = {}
    given = config.get("chat_template")
    if isinstance(given, str):
        templates["default"] = given
    elif isinstance(given, list):
        templates |= {entry["name"]: entry["template"] for entry in given}
    file = folder / "chat_template.jinja"
    if file.is_file():
        templates["default"] = _read(file)
    return templates


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(path, f"it is not UTF-8: {error}") from error


def _object(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise _wrong(path, f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _wrong(path, "a JSON object is expected")
    return value


def _wrong(path: Path, story: str) -> Invalid:
    return Invalid(f"{path}: {story}", code="invalid_tokenizer", parameter=path.name)
