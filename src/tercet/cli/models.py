"""`tercet models`: what can be served by name."""

from pathlib import Path

import click

from tercet.cli.compose import cache_folder
from tercet.models import ModelCacheConfig
from tercet.models.registry import list_models


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), help="The model cache.")
def command(cache: Path | None) -> None:
    """List the models that can be served by name, and which are in the model cache."""
    for entry in list_models(ModelCacheConfig(folder=cache or cache_folder())):
        place = entry.path if entry.present else "not fetched yet"
        click.echo(f"{entry.name:<12} {entry.size / 1e6:6.0f} MB  {entry.about}\n{'':<12} {place}")
    click.echo("\nBesides: a folder in Hugging Face layout, a .gguf file, a hub id (org/name).")
