"""`tercet run MODEL "prompt"`: one answer, no server."""

import sys

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import local_options, local_settings
from tercet.cli.talk import answer
from tercet.llm import LLM, SamplingParams


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
    """Answer PROMPT (or standard input) with MODEL, in processes that end with this command."""
    text = prompt if prompt is not None else sys.stdin.read()
    if not text.strip():
        raise Invalid("the prompt is empty", parameter="prompt")
    sampling = SamplingParams(
        max_tokens=_integer(options["max_tokens"]),
        temperature=float(str(options["temperature"])),
        seed=_integer(options["seed"]),
    )
    messages = [{"role": "user", "content": text}]
    if options["system"]:
        messages.insert(0, {"role": "system", "content": str(options["system"])})
    with LLM(model, settings=local_settings(options)) as llm:
        answer(llm, text if options["raw"] else messages, sampling)
    click.echo()


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None
