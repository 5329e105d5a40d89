"""Opening a model: from what a person names to a program with its weights."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tercet.base.model import NEUTRAL, ModelShape, SamplingDefaults
from tercet.models.checkpoints.contract import F32, Checkpoint, TokenizerSource
from tercet.models.config import ModelCacheConfig
from tercet.models.digests import DigestCache, Progress
from tercet.models.families.build import build
from tercet.models.image.build import ensure_image
from tercet.models.image.layout import LAYOUT_VERSION, map_image
from tercet.models.sources import locate, open_checkpoint
from tercet.models.spec import COST, parse_cost
from tercet.program.fuse import fuse
from tercet.program.program import Program
from tercet.program.recipes import Recipe

StageProgress = Callable[[str, int, int], None]
"""Called with (stage, done bytes, total bytes); stages are `fetch`, `check` and `build`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model that can be compiled; opened again by `location` it is the same but for its name."""

    name: str
    """What it is called where nobody gave another name."""
    location: str
    """A source that means this model and needs no network: for the other processes."""
    kind: str
    """`huggingface`, `gguf`, `random` or `cost`."""
    shape: ModelShape
    program: Program
    """Fused."""
    fingerprint: str
    """Hex; differs where the weights or the program do."""
    tokenizer_source: TokenizerSource
    defaults: SamplingDefaults = NEUTRAL
    image_path: Path | None
    """None for a model without weights (`cost`)."""

    def weights(self) -> Mapping[str, F32]:
        """The program's weights by name, mapped read-only; empty for a model without any."""
        return {} if self.image_path is None else map_image(self.image_path)


def open_model(
    source: str, *, cache: ModelCacheConfig, progress: StageProgress | None = None
) -> OpenedModel:
    """The model that `source` names, fetched, checked, its image built: whatever is missing.

    `Invalid` says in a sentence what is wrong, with file and tensor where one is at fault.
    """
    if source.startswith(COST):
        return _open_cost(source)
    located = locate(source, cache, _stage(progress, "fetch"))
    checkpoint = open_checkpoint(located.location)
    facts = checkpoint.facts()
    program = fuse(build(facts.shape))
    recipes = program.weights
    digests = DigestCache(cache.digests)
    content = _content(checkpoint, digests, _stage(progress, "check"))
    key = _hash("image", str(LAYOUT_VERSION), content, _spell(recipes))
    image = cache.images / f"{key}.image"
    ensure_image(checkpoint, recipes, image, digests=digests, progress=_stage(progress, "build"))
    return OpenedModel(
        name=located.name,
        location=located.location,
        kind=facts.kind,
        shape=facts.shape,
        program=program,
        fingerprint=_hash("model", content, repr(program)),
        tokenizer_source=facts.tokenizer,
        defaults=facts.defaults,
        image_path=image,
    )


def _open_cost(source: str) -> OpenedModel:
    shape = parse_cost(source)
    program = fuse(build(shape))
    return OpenedModel(
        name=source,
        location=source,
        kind="cost",
        shape=shape,
        program=program,
        fingerprint=_hash("cost", repr(program)),
        tokenizer_source="bytes",
        image_path=None,
    )


def _content(checkpoint: Checkpoint, digests: DigestCache, progress: Progress | None) -> str:
    """A digest of everything that decides the checkpoint's tensors."""
    facts = checkpoint.facts()
    parts = [facts.identity]
    for file in facts.files:
        parts += [Path(file).name, digests.sha256(Path(file), progress)]
    return _hash(*parts)


def _spell(recipes: Mapping[str, Recipe]) -> str:
    """The recipes as text: they are frozen values, whose repr says all of them."""
    return "\n".join(f"{name} {recipe!r}" for name, recipe in recipes.items())


def _hash(*parts: str) -> str:
    """A digest of parts that cannot be shifted into each other."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:32]


def _stage(progress: StageProgress | None, stage: str) -> Progress | None:
    if progress is None:
        return None
    report = progress
    return lambda done, total: report(stage, done, total)
