"""What `tercet run` and `tercet chat` share: a private model, and answers printed as they come."""

import asyncio
from collections.abc import Sequence

import click

from tercet.llm import LLM, Message, SamplingParams


def answer(llm: LLM, prompt: str | Sequence[Message], sampling: SamplingParams) -> str:
    """Print an answer piece by piece; the whole of it."""

    async def follow() -> str:
        pieces: list[str] = []
        async for piece in llm.stream(prompt, sampling):
            click.echo(piece, nl=False)
            pieces.append(piece)
        return "".join(pieces)

    return asyncio.run(follow())
