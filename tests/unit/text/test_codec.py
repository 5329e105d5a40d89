"""Encoding and decoding at their edges."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from recorded_tokenizers import NAMES, codec

from tercet.base.errors import Invalid

ALL = [*NAMES, "bytes"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", ["\ud800", "a\udc00b", "\udfff" * 3])
def test_half_a_surrogate_pair_is_refused(name, text):
    """Input that kills the server: invalid text is refused where it enters."""
    for special in (True, False):
        with pytest.raises(Invalid) as refusal:
            codec(name).encode(text, special=special)
        assert refusal.value.code == "invalid_text"


@pytest.mark.parametrize("name", ALL)
def test_ids_beyond_the_vocabulary_have_no_text(name):
    """A model's last rows are padding (vllm PR#44744): an id there must not break a stream."""
    made = codec(name)
    known = made.encode("hello", add_bos=False)
    beyond = [made.vocab_size, made.vocab_size + 1000]
    assert made.decode([beyond[0], *known, beyond[1]]) == "hello"
    assert made.token_bytes(beyond[0]) == b""
    assert made.token_text(beyond[0]) == ""
    assert not made.is_special(beyond[0])


@pytest.mark.parametrize("name", ALL)
def test_special_tokens_are_skipped_or_shown(name):
    made = codec(name)
    special = made.end_ids[0]
    text = made.token_text(special)
    ids = [special, *made.encode("hi", add_bos=False), special]
    assert made.is_special(special)
    assert made.decode(ids) == "hi"
    shown = made.decode(ids, skip_special=False)
    assert shown.startswith(text)
    assert shown.endswith(f"hi{text}")


@pytest.mark.parametrize("name", ALL)
def test_special_tokens_in_text_are_text_when_not_asked_for(name):
    made = codec(name)
    text = f"a{made.token_text(made.end_ids[0])}b"
    assert made.end_ids[0] in made.encode(text)
    plain = made.encode(text, special=False)
    assert made.end_ids[0] not in plain
    assert made.decode(plain) == text


@pytest.mark.parametrize("name", ALL)
def test_long_runs_are_encoded(name):
    """Hostile input: long runs of one character must not be quadratic, nor an error."""
    for text in (" " * 100_000, "a" * 100_000, "\n" * 50_000 + "x", "9" * 50_000, " \n" * 30_000):
        ids = codec(name).encode(text, add_bos=False)
        assert codec(name).decode(ids) == text


def test_one_codec_serves_many_threads():
    made = codec("smollm2")
    texts = [f"{n} some words <|im_end|> {n * 37}" for n in range(64)]
    alone = [made.encode(text, special=n % 2 == 0) for n, text in enumerate(texts)]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda n: made.encode(texts[n], special=n % 2 == 0), range(len(texts)))
        )
    assert together == alone


def test_bytes_are_their_own_tokens():
    made = codec("bytes")
    assert made.vocab_size == 260
    assert made.encode("hé\n") == list("hé\n".encode())
    assert made.encode("<|im_start|>a<|im_end|>") == [258, 97, 259]
    assert [made.token_bytes(byte) for byte in range(256)] == [bytes([b]) for b in range(256)]


class Watched:
    """A tokenizer of the library that notes how it is called."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.held = self.released = 0

    def encode(self, text, *, add_special_tokens):
        self.held = max(self.held, len(text))
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch_fast(self, texts, *, add_special_tokens):
        self.released += 1
        return self.tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("special", [True, False])
def test_others_go_on_while_a_long_text_is_encoded(monkeypatch, special):
    """Input that kills the server: a long text stopped the loop until the front seemed dead.

    The library keeps the interpreter while it encodes one text, and releases it for a batch.
    """
    made = codec("bytes")
    source = made._tokenizers
    watched = Watched(source._tokenizer if special else source._plain)
    monkeypatch.setattr(source, "_tokenizer" if special else "_plain", watched)
    for length in (10, 1000, 10_000, 1_000_000):
        assert len(made.encode("a" * length, special=special, add_bos=False)) == length
    assert watched.held < 10_000
    assert watched.released == 2


@pytest.mark.parametrize("name", ALL)
def test_long_and_short_texts_become_the_same_tokens(name):
    """Two ways into the library lead to one answer."""
    made = codec(name)
    text = "<|im_start|> Žluťoučký kůň, 日本語 😀 1234567 \n\n  x"
    long = text + "\n" * 2048
    for add_bos in (True, False):
        split = made.encode(long, add_bos=add_bos)
        known = made.encode(text, add_bos=add_bos)
        assert split[: len(known) - 8] == known[:-8]
        assert made.decode(split, skip_special=False).endswith("\n" * 2048)
