"""`tercet config show`: every value and where it came from."""

import dataclasses

import click

from tercet.cli.compose import compose, serving_options
from tercet.cli.settings import keys
from tercet.runtime.config import TreeConfig

SECRET = "api.api_keys"  # noqa: S105  the name of a key, not one


@click.group()
def command() -> None:
    """Show the configuration."""


@command.command()
@click.argument("model", required=False)
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@serving_options
@click.pass_context
def show(context: click.Context, /, model: str | None, *, changed: bool, **_: object) -> None:
    """Print the resolved configuration that `tercet serve` would use with the same options."""
    resolved = compose(context, model)
    for name in keys(TreeConfig):
        origin = resolved.origins[name]
        if changed and origin == "default":
            continue
        value = (
            "(set)" if name == SECRET and _at(resolved.value, name) else _at(resolved.value, name)
        )
        click.echo(f"{name:<44} = {value!r:<24} # {origin}")


def _at(config: object, name: str) -> object:
    for part in name.split("."):
        config = dict(_fields(config))[part]
    return config


def _fields(config: object) -> list[tuple[str, object]]:
    if not dataclasses.is_dataclass(config):
        return []
    return [(field.name, getattr(config, field.name)) for field in dataclasses.fields(config)]
