"""`tercet replay`: what `--record` wrote, given to the same machines again."""

import sys
from pathlib import Path

import click

from tercet.base.errors import Invalid
from tercet.runtime.recording import SUFFIX
from tercet.runtime.replay import replay

DIFFERENCE_CHARS_MAX = 2000


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Replay every recording in FOLDER (or one file): the same events must bring the same effects.

    One line a machine: its address and epoch, its events and effects, and `identical` or where it
    first differs. Exit code 1 if one differs. Needs no model and computes nothing.
    """
    paths = recordings(folder)
    width = max(len(path.name) for path in paths)
    lines = [compare(path) for path in paths]
    for path, (_, line) in zip(paths, lines, strict=True):
        click.echo(f"{path.name:<{width}}  {line}")
    if not all(same for same, _ in lines):
        sys.exit(1)


def recordings(folder: Path) -> list[Path]:
    """Give the files to replay, in the order of their names; `Invalid` if there is none."""
    if folder.is_file():
        return [folder]
    found = sorted(folder.glob(f"*{SUFFIX}"))
    if not found:
        raise Invalid(f"no *{SUFFIX} in {folder}; `tercet serve --record FOLDER` writes them")
    return found


def compare(path: Path) -> tuple[bool, str]:
    """Replay one; whether it agrees, and what to say of it."""
    if path.stat().st_size == 0:
        return True, "empty: its process was killed as it began"
    try:
        again = replay(path)
    except Invalid as error:
        return False, error.sentence
    counts = f"{again.num_events:>7} events {again.num_effects:>7} effects  "
    if again.difference:
        return False, f"{counts}DIFFERENT: {_cut(again.difference)}"
    return True, f"{counts}identical{': ' if again.broke else ''}{again.broke}"


def _cut(text: str) -> str:
    """Effects may hold whole prompts: a line stays one that can be read."""
    return text if len(text) <= DIFFERENCE_CHARS_MAX else text[:DIFFERENCE_CHARS_MAX] + " ..."
