"""Text to tokens and back, for one model."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from tokenizers import Tokenizer

from tercet.base.errors import Invalid
from tercet.text.detokenizer import Detokenizer, join, unfinished
from tercet.text.vocabulary import Vocabulary

_SHORT_CHARS = 2048


class Tokenizers(Protocol):
    """Where a codec has its tokenizers from."""

    def of(self, text: str, *, special: bool) -> Tokenizer:
        """One that cuts this text as the model's does; `special`: control tokens that are spelled
        in the text become those tokens.
        """
        ...

    def whole(self) -> Tokenizer:
        """The model's, for any text."""
        ...


class Whole:
    """The same tokenizer for every text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, text: str, *, special: bool) -> Tokenizer:
        del text
        return self._tokenizer if special else self._plain

    def whole(self) -> Tokenizer:
        return self._tokenizer

    @cached_property
    def _plain(self) -> Tokenizer:
        """The same tokenizer, blind to control tokens; two threads may both build it."""
        plain = Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain


class Codec:
    """A tokenizer; immutable, so any thread may use it. While a long text is encoded other threads
    go on.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizers: Tokenizers) -> None:
        self._vocabulary = vocabulary
        self._tokenizers = tokenizers
        self._pieces = vocabulary.pieces
        self._special = vocabulary.special_ids
        self._shown = vocabulary.shown()

    @property
    def vocab_size(self) -> int:
        """Number of tokens; a model may have more rows, whose ids have no text."""
        return len(self._pieces)

    @cached_property
    def token_bytes_max(self) -> int:
        """Length of the longest token: a text of so many bytes has at least one token."""
        known = self._vocabulary.longest
        return max(map(len, self._pieces), default=1) if known is None else known

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a text, the model's own `eos` first."""
        return self._vocabulary.end_ids

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    @property
    def templates(self) -> Mapping[str, str]:
        """Chat templates by name, for `ChatTemplate`."""
        return self._vocabulary.templates

    @property
    def named_tokens(self) -> Mapping[str, str]:
        """Texts of tokens by role (`bos_token`, `eos_token`, ...)."""
        return self._vocabulary.named

    @property
    def definition(self) -> str:
        """The tokenizer in the JSON form that the `tokenizers` library reads."""
        return self._tokenizers.whole().to_str()

    @property
    def strips_space(self) -> bool:
        """True if the first space of a text is the tokenizer's own."""
        return self._vocabulary.strips_space

    def encode(self, text: str, *, special: bool = True, add_bos: bool = True) -> list[int]:
        """The tokens of a text.

        `special`: control tokens that are spelled in the text become those tokens; otherwise
        their characters are text like any other. `add_bos`: put around the text what the model
        was trained with (often a beginning token, often nothing); a rendered chat has its own.
        """
        try:
            tokenizer = self._tokenizers.of(text, special=special)
            if len(text) > _SHORT_CHARS:
                # The library releases the interpreter for batches only.
                return tokenizer.encode_batch_fast([text], add_special_tokens=add_bos)[0].ids
            return tokenizer.encode(text, add_special_tokens=add_bos).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise Invalid(
                "the text is not valid Unicode: it holds half of a surrogate pair",
                code="invalid_text",
            ) from error

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of the tokens; invalid bytes are U+FFFD."""
        stream = self.detokenizer(skip_special=skip_special)
        return stream.push(ids) + stream.flush()

    def detokenizer(
        self, *, skip_special: bool = True, prompt_tail: Sequence[int] = ()
    ) -> Detokenizer:
        """A stream whose text continues that of `prompt_tail`.

        Only the end of the prompt matters: whether there is text before the stream (then its
        first space stays), and an unfinished character. The whole prompt may be given.
        """
        pieces = self._shown if skip_special else self._pieces
        before = b""
        for index in reversed(prompt_tail):
            before = join(pieces, [index]) + before
            if len(before) > 3:  # the longest unfinished character
                break
        return Detokenizer(
            pieces,
            strips_space=self._vocabulary.strips_space and not before,
            pending=unfinished(before),
        )

    def token_bytes(self, index: int) -> bytes:
        """The bytes of one token, special or not; none for an id without text."""
        return self._pieces[index] if 0 <= index < len(self._pieces) else b""

    def token_text(self, index: int) -> str:
        """One token for people; bytes that are no character by themselves are U+FFFD."""
        return self.token_bytes(index).decode("utf-8", "replace")

    def is_special(self, index: int) -> bool:
        return index in self._special
