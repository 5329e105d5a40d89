"""`tercet run MODEL "prompt"`: one answer, no server."""

import sys

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import local_config, local_options
from tercet.runtime.solo import open_solo


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
    names = ("max_tokens", "temperature", "seed")
    fields: dict[str, object] = {name: options[name] for name in names}
    if options["raw"]:
        fields["prompt"] = text
    else:
        fields["messages"] = _messages(text, options["system"])
    solo = open_solo(local_config(model, options), chats=not options["raw"])
    for piece in solo.answer(fields, chat=not options["raw"]):
        click.echo(piece, nl=False)
    solo.close()
    click.echo()


def _messages(text: str, system: object) -> list[dict[str, object]]:
    said: list[dict[str, object]] = [{"role": "user", "content": text}]
    return [{"role": "system", "content": system}, *said] if system else said
