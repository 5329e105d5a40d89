"""`tercet run MODEL "prompt"`: one answer, no server."""

import gc
import os
import sys

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import local_config, local_options


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--max-tokens", default=256, show_default=True, type=click.IntRange(1))
@click.option("--temperature", default=0.0, show_default=True, type=click.FloatRange(0, 2))
@click.option("--seed", type=int, help="Same seed, same answer.")
@click.option("--system", help="A system message.")
@click.option("--raw", is_flag=True, help="Complete the text; no chat template.")
@local_options
def command(model: str, prompt: str | None, **options: object) -> None:
    """Answer PROMPT (or standard input) with MODEL, within this process."""
    text = prompt if prompt is not None else sys.stdin.read()
    if not text.strip():
        raise Invalid("the prompt is empty", parameter="prompt")
    config = local_config(model, options)
    _hurry()
    from tercet.cli.progress import late_bars
    from tercet.runtime.solo import open_solo

    chat = not options["raw"]
    names = ("max_tokens", "temperature", "seed")
    fields: dict[str, object] = {name: options[name] for name in names}
    fields |= {"messages": _messages(text, options["system"])} if chat else {"prompt": text}
    with late_bars() as progress:
        solo = open_solo(config, chats=chat, progress=progress)
    for piece in solo.answer(fields, chat=chat):
        click.echo(piece, nl=False)
        gc.enable()
    solo.close()
    click.echo()


def _hurry() -> None:
    """Make the first token come sooner: what is loaded until then stays, and the threads that
    OpenBLAS starts with NumPy would only be in the way of ours (a device that uses it says so).
    """
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _messages(text: str, system: object) -> list[dict[str, object]]:
    said: list[dict[str, object]] = [{"role": "user", "content": text}]
    return [{"role": "system", "content": system}, *said] if system else said
