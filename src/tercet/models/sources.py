"""What a person may name as a model, and the checkpoint that it means.

    smollm2            a name of the registry, fetched into the model cache
    ./folder           a folder in Hugging Face layout, or one with a single GGUF file in it
    ./model.gguf       a GGUF file, or the first of the parts of a split one
    organization/name  a repository of the Hugging Face hub, a revision after `@` if wanted
    random:llama?...   a tiny model with random weights (`models.spec`)

A path wins over an id of the hub that is spelled alike.
"""

from pathlib import Path

from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.models.checkpoints.contract import Checkpoint
from tercet.models.checkpoints.gguf_file import open_gguf
from tercet.models.checkpoints.outline import OutlineCache
from tercet.models.config import ModelCacheConfig
from tercet.models.digests import Progress
from tercet.models.families.build import build
from tercet.models.registry import REGISTRY, ensure_model, find_model
from tercet.models.spec import RANDOM, parse_random
from tercet.program.recipes import sources


class Located(Struct, frozen=True, kw_only=True):
    """A source that needs no fetching any more."""

    name: str
    """What the model is called where nobody gave another name."""
    location: str
    """A path or a `random:` line: a source that means the same without a network."""


def locate(source: str, cache: ModelCacheConfig, progress: Progress | None = None) -> Located:
    """Where the model is, fetched if it has to be; `Invalid` if there is none of this name."""
    if source.startswith(RANDOM):
        return Located(name=source, location=source)
    entry = find_model(source)
    if entry is not None:
        return Located(name=source, location=str(ensure_model(entry, cache, progress)))
    path = _existing(source)
    if path is not None:
        return _locate_path(path.absolute())
    if source.startswith(("/", "./", "../", "~")) or source.endswith(".gguf"):
        raise _unknown(source, "no such file or folder")
    from tercet.models.checkpoints.hub import HUB_ID, fetch_from_hub

    if HUB_ID.fullmatch(source):
        return Located(name=source, location=str(fetch_from_hub(source)))
    from difflib import get_close_matches  # only for a mistake

    names = [known.name for known in REGISTRY]
    near = get_close_matches(source, names, 1)
    raise _unknown(source, f"did you mean {near[0]}" if near else "no model of this name")


def open_checkpoint(location: str, outlines: OutlineCache | None = None) -> Checkpoint:
    """The checkpoint at a location that `locate` gave; with `outlines` what was read of its files'
    heads once is not read again.
    """
    if location.startswith(RANDOM):
        from tercet.models.checkpoints.random_model import RandomCheckpoint

        shape, seed = parse_random(location)
        recipes = build(shape).weights.values()
        tensors = {one.name: one.shape for recipe in recipes for one in sources(recipe)}
        return RandomCheckpoint(location, shape, seed, tensors)
    path = Path(location)
    if path.is_dir():
        from tercet.models.checkpoints.huggingface import open_folder

        return open_folder(path)
    return open_gguf(path, outlines)


def _existing(source: str) -> Path | None:
    """The path that the source is, if there is something at it."""
    try:
        path = Path(source).expanduser()
        return path if source and path.exists() else None
    except RuntimeError:  # `~nobody`
        return None
    except OSError as error:
        raise _unknown(source, error.strerror or "no path") from None


def _locate_path(path: Path) -> Located:
    if not path.is_dir():
        return Located(name=path.stem, location=str(path))
    from tercet.models.checkpoints.huggingface import CONFIG

    files = sorted(path.glob("*.gguf"))
    if files and not (path / CONFIG).exists():
        if len(files) > 1 and "-00001-of-" not in files[0].name:
            raise Invalid(
                f"{path} holds {len(files)} GGUF files; name one of them.",
                code="invalid_model",
                parameter=str(path),
            )
        return Located(name=path.name, location=str(files[0]))
    return Located(name=path.name, location=str(path))


def _unknown(source: str, reason: str) -> Invalid:
    return Invalid(
        f"{source!r} is no model that can be found: {reason}. Expected a name of the registry "
        f"({', '.join(known.name for known in REGISTRY)}), a folder in Hugging Face layout, a "
        f".gguf file, or organization/name of the hub.",
        code="model_not_found",
        parameter=source,
    )
