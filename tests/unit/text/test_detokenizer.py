"""Streams of tokens as text, never half a character."""

import pytest
from recorded_tokenizers import NAMES, codec

from tercet.text.detokenizer import Detokenizer, unfinished

BYTES = [bytes([byte]) for byte in range(256)]


def pieces_of(data: bytes) -> list[str]:
    stream = Detokenizer(BYTES)
    return [*(stream.push([byte]) for byte in data), stream.flush()]


@pytest.mark.parametrize("name", [*NAMES, "bytes"])
@pytest.mark.parametrize(
    "text",
    [
        "中文测试没有替换字符",
        "Příliš žluťoučký kůň",
        "😀👍🏽👨‍👩‍👧‍👦🇩🇪",
        "naïve — “quoted”",
        "हिन्दी",
    ],
)
def test_no_replacement_characters_in_the_middle(name, text):
    """vllm#8627, vllm-mlx#109, exo#1691, mlx-vlm#1076: CJK, Czech, emoji, token by token."""
    made = codec(name)
    stream = made.detokenizer()
    pieces = [stream.push([token]) for token in made.encode(text)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == text
    assert stream.flush() == ""


def test_a_character_appears_with_its_last_byte():
    assert pieces_of("é😀".encode()) == ["", "é", "", "", "", "😀", ""]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff", ["\ufffd", ""]),
        (b"\x80a", ["\ufffd", "a", ""]),
        (b"\xc0\xaf", ["\ufffd", "\ufffd", ""]),
        (b"\xe0\x80\x80", ["", "\ufffd\ufffd", "\ufffd", ""]),
        (b"\xed\xa0\x80", ["", "\ufffd\ufffd", "\ufffd", ""]),
        (b"\xed\x9f\xbf", ["", "", "\ud7ff", ""]),
        (b"\xf4\x90\x80\x80", ["", "\ufffd\ufffd", "\ufffd", "\ufffd", ""]),
        (b"\xf0\x9f\x98A", ["", "", "", "\ufffdA", ""]),
        (b"\xf0\x9f\xc3\xa9", ["", "", "\ufffd", "é", ""]),
    ],
)
def test_invalid_bytes_are_replaced_as_soon_as_they_are_hopeless(data, expected):
    assert pieces_of(data) == expected
    assert "".join(expected) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("data", [b"\xe4", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc3"])
def test_what_is_left_unfinished_is_one_replacement(data):
    stream = Detokenizer(BYTES)
    assert stream.push(list(b"ok" + data)) == "ok"
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_the_first_space_belongs_to_sentencepiece_only_at_the_start():
    made = codec("llama-spm")
    ids = made.encode("the fox", add_bos=False)
    assert made.detokenizer().push(ids) == "the fox"
    assert made.detokenizer(prompt_tail=[1]).push(ids) == "the fox"
    assert made.detokenizer(prompt_tail=made.encode("so")).push(ids) == " the fox"
    assert made.detokenizer(skip_special=False, prompt_tail=[1]).push(ids) == " the fox"


def test_a_prompt_may_end_inside_a_character():
    made = codec("bytes")
    stream = made.detokenizer(prompt_tail=list("a😀".encode())[:-1])
    assert stream.push([0x80]) == "😀"


def test_skipped_tokens_do_not_break_a_character():
    made = codec("bytes")
    first, second = "é".encode()
    stream = made.detokenizer()
    assert [stream.push([token]) for token in (first, 258, second)] == ["", "", "é"]


@pytest.mark.parametrize(
    ("data", "rest"),
    [
        (b"", b""),
        (b"abc", b""),
        (b"a\xe4\xb8", b"\xe4\xb8"),
        (b"\xed\xa0", b""),
        (b"\xff", b""),
        (b"\x98\x80\xf0\x9f", b"\xf0\x9f"),
    ],
)
def test_unfinished(data, rest):
    assert unfinished(data) == rest
