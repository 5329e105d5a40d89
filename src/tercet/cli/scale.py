"""`tercet scale prefill=1 decode=2`: how many executors of each role there shall be."""

import click

from tercet.base.errors import Invalid
from tercet.cli.ask import ask, server_options

ROLES = ("prefill", "decode", "colocated")


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="ROLE=COUNT...")
@click.option("--model", help="Which of the served models.")
@server_options
def command(targets: tuple[str, ...], *, model: str | None, url: str, api_key: str | None) -> None:
    """Set the numbers of a running server; roles that are not named stay as they are.

    Executors of a role that has too many change to one that has too few and keep what they have
    begun; only then others are started or stopped.
    """
    body: dict[str, object] = dict(map(_target, targets))
    if model is not None:
        body["model"] = model
    wanted = ask(url, "/tercet/roles", key=api_key, put=body)
    counts = ", ".join(f"{role} {wanted[role]}" for role in ROLES)
    click.echo(f"{wanted['model']}: {counts}")


def _target(text: str) -> tuple[str, int]:
    role, _, count = text.partition("=")
    if role not in ROLES or not count.isdecimal():
        raise Invalid(
            f"{text!r} is not of the form ROLE=COUNT; roles are {', '.join(ROLES)}.",
            parameter="targets",
        )
    return role, int(count)
