"""`tercet images`: the model images of this host: list, remove, verify."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from tercet.base.errors import Invalid
from tercet.cli.compose import cache_folder
from tercet.models import ModelCacheConfig
from tercet.models.image.layout import LAYOUT_VERSION
from tercet.models.image.shelf import Entry, Removal, Shelf, Verdict

KEY_SHOWN = 12
KEY_MIN = 4
DAY_S = 86_400.0
Command = TypeVar("Command", bound=Callable[..., Any])


def _options(command: Command) -> Command:
    """Where the images are, and how to say it."""
    command = click.option("--json", "as_json", is_flag=True, help="For programs.")(command)
    return click.option("--cache", type=click.Path(path_type=Path), help="The model cache.")(
        command
    )


@click.group()
def command() -> None:
    """List, remove or verify model images: weights as a device reads them, made from a model's
    files and made again when they are missing.
    """


@command.command()
@_options
def ls(cache: Path | None, *, as_json: bool) -> None:
    """List the images, the least recently used first."""
    entries = _shelf(cache).entries()
    if as_json:
        click.echo(json.dumps([_facts(entry) for entry in entries], indent=2))
        return
    head = ("KEY", "MODEL", "FORMATS", "PACKED FOR", "SIZE", "LAST USE", "")
    rows = [head, *(_row(entry) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    total = sum(entry.size for entry in entries)
    click.echo(f"\n{len(entries)} images, {_size(total)}")


@command.command()
@click.argument("images", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every image.")
@click.option("--unused-for", type=float, metavar="DAYS", help="Images not used for so long.")
@_options
def rm(
    images: Sequence[str],
    cache: Path | None,
    *,
    everything: bool,
    unused_for: float | None,
    as_json: bool,
) -> None:
    """Remove IMAGES: keys (or their beginnings) or names of models, as `ls` shows them.

    An image that a process has mapped stays. Exit status 1 if one that was asked for did.
    """
    shelf = _shelf(cache)
    entries = shelf.entries()
    if not (images or everything or unused_for is not None):
        raise click.UsageError("name images, or give --all or --unused-for DAYS")
    wanted = entries if everything else _chosen(entries, images)
    if unused_for is not None:
        since = time.time() - unused_for * DAY_S
        old = [entry for entry in entries if entry.last_use <= since and not entry.in_use]
        wanted = [*wanted, *(entry for entry in old if entry not in wanted)]
    results = {entry.key: shelf.remove(entry.key) for entry in wanted}
    shelf.sweep()
    freed = sum(entry.size for entry in wanted if results[entry.key] is Removal.REMOVED)
    if as_json:
        click.echo(json.dumps({"freed": freed, "images": results}, indent=2))
    else:
        for entry in wanted:
            click.echo(f"{entry.key[:KEY_SHOWN]}  {_name(entry)}  {results[entry.key].value}")
        click.echo(f"{_size(freed)} freed")
    sys.exit(1 if Removal.IN_USE in results.values() else 0)


@command.command()
@click.argument("images", nargs=-1)
@_options
def verify(images: Sequence[str], cache: Path | None, *, as_json: bool) -> None:
    """Sum IMAGES (all, if none is named) anew. Exit status 1 if one is damaged.

    A damaged image is rebuilt when it is wanted next.
    """
    shelf = _shelf(cache)
    entries = shelf.entries()
    verdicts: dict[str, Verdict] = {}
    for entry in _chosen(entries, images) if images else entries:
        verdict = shelf.verify(entry.key)
        if verdict is Verdict.ABSENT:  # removed meanwhile
            continue
        verdicts[entry.key] = verdict
        if not as_json:
            click.echo(f"{entry.key[:KEY_SHOWN]}  {_name(entry)}  {verdict.value}")
    if as_json:
        click.echo(json.dumps(verdicts, indent=2))
    sys.exit(1 if Verdict.DAMAGED in verdicts.values() else 0)


def _shelf(cache: Path | None) -> Shelf:
    return Shelf(ModelCacheConfig(folder=cache or cache_folder()))


def _chosen(entries: Sequence[Entry], images: Sequence[str]) -> list[Entry]:
    """The entries that are named; `Invalid` where a name means none or a beginning several."""
    chosen: dict[str, Entry] = {}
    for image in images:
        found = [entry for entry in entries if _name(entry) == image]
        if not found and len(image) >= KEY_MIN:
            found = [entry for entry in entries if entry.key.startswith(image)]
            if len(found) > 1:
                raise Invalid(
                    f"{len(found)} images have keys that begin with {image!r}; give more of it.",
                    parameter=image,
                )
        if not found:
            raise Invalid(
                f"There is no image {image!r}; `tercet images ls` shows keys and names.",
                parameter=image,
            )
        chosen |= {entry.key: entry for entry in found}
    return list(chosen.values())


def _facts(entry: Entry) -> dict[str, object]:
    header = entry.header
    return {
        "key": entry.key,
        "usable": header is not None,
        "model": header.source if header else None,
        "quantization": header.quantization if header else None,
        "formats": _formats(entry),
        "packed_for": header.packer if header else None,
        "bytes": entry.size,
        "last_use": datetime.fromtimestamp(entry.last_use).astimezone().isoformat("T", "seconds"),
        "in_use": entry.in_use,
    }


def _row(entry: Entry) -> tuple[str, ...]:
    used = datetime.fromtimestamp(entry.last_use).astimezone()
    return (
        entry.key[:KEY_SHOWN],
        _name(entry),
        " ".join(_formats(entry)),
        entry.header.packer if entry.header else "",
        _size(entry.size),
        f"{used:%Y-%m-%d %H:%M}",
        "in use" if entry.in_use else "",
    )


def _name(entry: Entry) -> str:
    if entry.header is not None:
        return entry.header.source
    if entry.layout in {None, LAYOUT_VERSION}:
        return "(damaged)"
    return f"(of layout {entry.layout})"


def _formats(entry: Entry) -> list[str]:
    """How weights are stored, the format of most bytes first."""
    sizes: dict[str, int] = {}
    for one in entry.header.weights if entry.header else ():
        sizes[one.format.value] = sizes.get(one.format.value, 0) + one.size
    return sorted(sizes, key=lambda form: (-sizes[form], form))


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
