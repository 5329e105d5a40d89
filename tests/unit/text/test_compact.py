"""A vocabulary kept as arrays cuts and joins text exactly as the tokenizer that it was made of."""

import json
import lzma
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_tokenizers import NAMES, RECORDED, codec, metadata

from tercet.base.errors import Invalid
from tercet.text.codec import Codec
from tercet.text.compact import MAGIC, SHORT_BYTES, keep_compact, load_compact
from tercet.text.gguf_source import read_gguf

PLAIN = [name for name in NAMES if metadata(name)["tokenizer.ggml.model"] == "gpt2"]
KEY = "0123"


@cache
def compact(name: str, folder: Path) -> Codec:
    path = folder / f"{name}.vocabulary"
    keep_compact(path, KEY, read_gguf(metadata(name)))
    found = load_compact(path, KEY)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


def recorded_texts(name: str) -> list[str]:
    cases = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["cases"]
    return [case["text"] for case in cases]


def test_some_vocabularies_are_plain() -> None:
    assert len(PLAIN) >= 3


@pytest.mark.parametrize("name", PLAIN)
def test_what_it_says_of_itself(name: str, folder: Path) -> None:
    ours, whole = compact(name, folder), codec(name)
    for fact in ("vocab_size", "token_bytes_max", "end_ids", "bos_id", "eos_id", "templates"):
        assert getattr(ours, fact) == getattr(whole, fact), fact
    assert ours.named_tokens == whole.named_tokens
    assert ours.strips_space == whole.strips_space
    every = range(-1, whole.vocab_size + 2)
    assert [ours.is_special(one) for one in every] == [whole.is_special(one) for one in every]
    assert [ours.token_bytes(one) for one in every] == [whole.token_bytes(one) for one in every]
    assert json.loads(ours.definition) == json.loads(whole.definition)


@pytest.mark.parametrize("name", PLAIN)
def test_texts_are_cut_alike(name: str, folder: Path) -> None:
    ours, whole = compact(name, folder), codec(name)
    for text in [*recorded_texts(name), "a" * (SHORT_BYTES + 1), "<|im_start|>" * 3]:
        for special in (True, False):
            for add_bos in (True, False):
                expected = whole.encode(text, special=special, add_bos=add_bos)
                assert ours.encode(text, special=special, add_bos=add_bos) == expected, text


@settings(max_examples=120, deadline=None)
@given(data=st.data(), name=st.sampled_from(PLAIN))
def test_any_text_is_cut_alike(data: st.DataObject, name: str, folder: Path) -> None:
    ours, whole = compact(name, folder), codec(name)
    some_token = st.integers(0, whole.vocab_size - 1).map(whole.token_text)
    words = st.lists(st.one_of(some_token, st.text(max_size=8)), max_size=12)
    text = "".join(data.draw(words))
    special = data.draw(st.booleans())
    ids = whole.encode(text, special=special)
    assert ours.encode(text, special=special) == ids
    assert ours.decode(ids) == whole.decode(ids)
    assert ours.decode(ids, skip_special=False) == whole.decode(ids, skip_special=False)


@pytest.mark.parametrize("name", [one for one in NAMES if one not in PLAIN])
def test_other_vocabularies_are_not_kept(name: str, folder: Path) -> None:
    path = folder / f"{name}.other"
    keep_compact(path, KEY, read_gguf(metadata(name)))
    assert not path.exists()


def test_half_a_surrogate_pair_is_refused(folder: Path) -> None:
    with pytest.raises(Invalid) as refusal:
        compact(PLAIN[0], folder).encode("\ud800")
    assert refusal.value.code == "invalid_text"


def test_what_is_not_whole_or_not_ours_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.vocabulary"
    assert load_compact(path, KEY) is None
    keep_compact(path, KEY, read_gguf(metadata(PLAIN[0])))
    whole = path.read_bytes()
    assert load_compact(path, KEY) is not None
    assert load_compact(path, "another") is None
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    later = MAGIC + b"\xff" + whole[len(MAGIC) + 1 :]
    foreign = lzma.compress(whole)
    for content in (b"", whole[:10], whole[:-1], bytes(flipped), later, foreign):
        path.write_bytes(content)
        assert load_compact(path, KEY) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    keep_compact(tmp_path / "file" / "a.vocabulary", KEY, read_gguf(metadata(PLAIN[0])))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
