"""`tercet chat`: a conversation in the terminal."""

import contextlib

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import local_options, local_settings
from tercet.cli.talk import answer
from tercet.llm import LLM, Failed, SamplingParams


@click.command()
@click.argument("model", default="smollm2")
@click.option("--max-tokens", default=512, show_default=True, type=click.IntRange(1))
@click.option("--temperature", default=0.7, show_default=True, type=click.FloatRange(0, 2))
@click.option("--system", help="A system message.")
@local_options
def command(
    model: str,
    *,
    max_tokens: int,
    temperature: float,
    system: str | None,
    **options: object,
) -> None:
    """Talk with MODEL. An empty line or Ctrl-D ends; /new forgets the conversation."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  line editing and history in input()

    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    start = [{"role": "system", "content": system}] if system else []
    with LLM(model, settings=local_settings(options)) as llm:
        click.echo(f"{llm.model}. An empty line or Ctrl-D ends, /new forgets what was said.")
        messages = list(start)
        while (text := _ask()) is not None:
            if text == "/new":
                messages = list(start)
                continue
            messages.append({"role": "user", "content": text})
            try:
                messages.append({"role": "assistant", "content": answer(llm, messages, sampling)})
            except (Invalid, Failed) as error:
                messages.pop()
                click.echo(f"\n{error}", err=True)
            click.echo()


def _ask() -> str | None:
    """What the person says; None at the end."""
    try:
        return input("> ").strip() or None
    except EOFError:
        click.echo()
        return None
