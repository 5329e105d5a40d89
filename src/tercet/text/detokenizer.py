"""Turns one stream of tokens into text, never half a character.

    tokens  ──▶ bytes of each ──▶ [ pending | new bytes ] ──▶ whole characters
                                      └── at most 3 bytes that may still become one

Every kind of tokenizer that is loaded has a table from token to bytes, so a stream needs no
context but the bytes of an unfinished character. Bytes that cannot become valid UTF-8 are U+FFFD
at once, by the rule of the Unicode standard (one for each maximal subpart, section 3.9).
"""

from codecs import utf_8_decode
from collections.abc import Sequence


class Detokenizer:
    """One stream: what `push` and `flush` return, joined, is the decoded whole.

    `pieces` maps token to bytes (skipped tokens to none); ids beyond it have no text.
    `strips_space`: the first space of the text belongs to the tokenizer.
    """

    __slots__ = ("_pending", "_pieces", "_strips")

    def __init__(
        self, pieces: Sequence[bytes], *, strips_space: bool = False, pending: bytes = b""
    ) -> None:
        self._pieces = pieces
        self._strips = strips_space
        self._pending = pending

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens make certain; possibly empty."""
        pieces = self._pieces
        try:
            data = b"".join([pieces[index] for index in ids])
        except IndexError:
            data = join(pieces, ids)
        if self._strips and data:
            self._strips = False
            data = data.removeprefix(b" ")
        if self._pending:
            data = self._pending + data
        text, taken = utf_8_decode(data, "replace", False)
        if taken == len(data):
            self._pending = b""
            return text
        more, self._pending = _settle(data[taken:])
        return text + more

    def flush(self) -> str:
        """The end of the stream: what is left of an unfinished character, as U+FFFD."""
        text = self._pending.decode("utf-8", "replace")
        self._pending = b""
        return text


def join(pieces: Sequence[bytes], ids: Sequence[int]) -> bytes:
    """The bytes of the tokens; ids beyond the vocabulary (padding of the model) have none."""
    size = len(pieces)
    return b"".join([pieces[index] for index in ids if index < size])


def unfinished(data: bytes) -> bytes:
    """The bytes at the end that may be the beginning of a character."""
    _, taken = utf_8_decode(data, "replace", False)
    return _settle(data[taken:])[1]


def _settle(rest: bytes) -> tuple[str, bytes]:
    """What the decoder left: as text if it can become no character, else to wait for more.

    The decoder waits after ED A0..BF, the first two bytes of a surrogate, which UTF-8 forbids.
    """
    if len(rest) > 1 and rest[0] == 0xED and rest[1] > 0x9F:
        return rest.decode("utf-8", "replace"), b""
    return "", rest
