"""Tokens equal to llama.cpp's, for every kind of tokenizer (tests/data/tokenizers)."""

import hashlib
import json

import pytest
from recorded_tokenizers import NAMES, RECORDED, codec, metadata

from tercet.base.errors import Invalid
from tercet.text.load import load_codec
from tercet.text.pretokenizers import KINDS


def vectors(name: str) -> dict:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_llama_cpp(name):
    recorded = vectors(name)
    assert len(recorded["cases"]) > 50
    for case in recorded["cases"]:
        text = case["text"]
        assert codec(name).encode(text) == case["whole"], text
        assert codec(name).encode(text, special=False, add_bos=False) == case["plain"], text


@pytest.mark.parametrize("name", NAMES)
def test_every_token_has_the_bytes_of_llama_cpp(name):
    recorded, made = vectors(name), codec(name)
    assert made.vocab_size == recorded["vocab_size"]
    digest = hashlib.sha256()
    for token in range(made.vocab_size):
        shown = b"" if made.is_special(token) else made.token_bytes(token)
        for data in (made.token_bytes(token), shown):
            digest.update(len(data).to_bytes(4, "little") + data)
    assert digest.hexdigest() == recorded["pieces_sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_end_tokens_end_texts_in_llama_cpp_too(name):
    """Ours are fewer: llama.cpp counts `<reponame>` of SmolLM2, a mark of code files."""
    ends = set(codec(name).end_ids)
    assert codec(name).eos_id in ends
    assert ends <= set(vectors(name)["end_ids"])


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name):
    for case in vectors(name)["cases"]:
        text = case["text"]
        ids = codec(name).encode(text, special=False, add_bos=False)
        if name == "llama-spm" and "<tool>" in text:
            continue  # a space is put after every token found in text, as llama.cpp does
        expected = text.replace("▁", " ") if "spm" in name else text
        assert codec(name).decode(ids) == expected


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("smollm", "gpt-2"),
        ("gpt-2", "default"),
        ("llama-bpe", "qwen2"),
        ("qwen2", "tekken"),
        ("llama-bpe", "smaug-bpe"),
        ("smollm", "llama-bpe"),
    ],
)
def test_vectors_tell_kinds_apart(kind, other):
    wrong = load_codec(metadata(kind) | {"tokenizer.ggml.pre": other})
    assert any(
        wrong.encode(case["text"], add_bos=False) != codec(kind).encode(case["text"], add_bos=False)
        for case in vectors(kind)["cases"]
    )


def test_smollm2_splits_digits_and_adds_no_beginning():
    """What a GGUF tokenizer made by transformers gets wrong for this model."""
    smollm2 = codec("smollm2")
    assert [smollm2.token_text(token) for token in smollm2.encode("2024")] == list("2024")
    assert smollm2.encode("a") == smollm2.encode("a", add_bos=False)
    assert smollm2.token_text(smollm2.end_ids[0]) == "<|im_end|>"


@pytest.mark.parametrize("kind", ["", "gpt2", "QWEN2", "deepseek-v3", "qwen35"])
def test_an_unknown_kind_is_refused_by_name(kind):
    with pytest.raises(Invalid) as refusal:
        load_codec(metadata("qwen2") | {"tokenizer.ggml.pre": kind})
    assert repr(kind) in refusal.value.sentence
    assert all(name in refusal.value.sentence for name in KINDS)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model", "bert", "gpt2"),
        ("model", None, "expected a text"),
        ("tokens", [], "list of texts"),
        ("tokens", None, "list of texts"),
        ("token_type", [1, 2], "a number for each of the 807 tokens"),
        ("merges", ["x"], "no pair"),
        ("merges", ["zzz yyy"], "not a tokenizer"),
    ],
)
def test_broken_metadata_is_refused_in_a_sentence(key, value, words):
    with pytest.raises(Invalid) as refusal:
        load_codec(metadata("qwen2") | {f"tokenizer.ggml.{key}": value})
    assert words in refusal.value.sentence
    assert refusal.value.code in {"invalid_tokenizer", "unsupported_tokenizer"}


def test_scores_are_needed_for_sentencepiece():
    with pytest.raises(Invalid, match="scores"):
        load_codec(metadata("llama-spm") | {"tokenizer.ggml.scores": [0.0]})
