"""Text to tokens without stopping the event loop: long texts are encoded in threads."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tercet.api.config import ApiConfig
from tercet.api.service import ServedModel
from tercet.base.errors import Invalid

T = TypeVar("T")


class Threads(Protocol):
    """Where long work is done while others go on."""

    async def call(self, work: Callable[[], T]) -> T:
        """Give what the work gives."""
        ...

    def close(self) -> None:
        """Begin nothing more."""
        ...


class Tokenizing:
    """Encodes; the libraries release the interpreter, so other requests go on meanwhile."""

    def __init__(self, config: ApiConfig, threads: Threads | None = None) -> None:
        """Without threads all work is done at once: for a caller who serves nobody else."""
        self._inline_chars_max = config.inline_chars_max
        self._threads = threads

    async def encode(
        self, model: ServedModel, texts: Sequence[str], *, add_bos: bool
    ) -> list[tuple[int, ...]]:
        """Give the tokens of each text, at least one, all within the model's vocabulary."""

        def work() -> list[tuple[int, ...]]:
            return [tuple(model.codec.encode(text, add_bos=add_bos)) for text in texts]

        encoded = await self.call(sum(map(len, texts)), work)
        for tokens in encoded:
            _check(tokens, model)
        return encoded

    async def call(self, size: int, work: Callable[[], T]) -> T:
        """Do the work here, or in a thread where its size in characters is large."""
        if self._threads is None or size <= self._inline_chars_max:
            return work()
        return await self._threads.call(work)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


def _check(tokens: tuple[int, ...], model: ServedModel) -> None:
    if not tokens:
        raise Invalid(
            "The prompt is empty after tokenization, but at least one token was expected.",
            code="empty_prompt",
            parameter="prompt",
        )
    if model.codec.vocab_size > model.vocab and max(tokens) >= model.vocab:
        raise Invalid(
            f"The text becomes token {max(tokens)}, which the model does not have:"
            f" ids from 0 to {model.vocab - 1} were expected.",
            parameter="prompt",
        )
