"""Text to tokens without stopping the event loop: long texts are encoded in threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tercet.api.config import ApiConfig
from tercet.api.service import ServedModel
from tercet.base.errors import Invalid

T = TypeVar("T")


class Tokenizing:
    """Encodes; the libraries release the interpreter, so other requests go on meanwhile."""

    def __init__(self, config: ApiConfig) -> None:
        self._inline_chars_max = config.inline_chars_max
        self._pool = ThreadPoolExecutor(config.tokenizer_threads, thread_name_prefix="tokenize")

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
        if size <= self._inline_chars_max:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


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
