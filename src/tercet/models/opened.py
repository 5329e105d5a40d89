"""Opening a model: from what a person names to a program with its weights."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.base.model import NEUTRAL, ModelShape, SamplingDefaults
from tercet.models.checkpoints.contract import Checkpoint, TokenizerSource
from tercet.models.checkpoints.outline import OutlineCache
from tercet.models.config import ModelCacheConfig
from tercet.models.digests import DigestCache, Progress
from tercet.models.families.build import build
from tercet.models.image.build import WantedImage, ensure_image
from tercet.models.image.layout import LAYOUT_VERSION, About
from tercet.models.image.mapped import MappedImage
from tercet.models.image.shelf import Shelf
from tercet.models.quantization import choose_formats
from tercet.models.sources import Located, locate, open_checkpoint
from tercet.models.spec import COST, parse_cost
from tercet.program.formats import Format
from tercet.program.fuse import fuse
from tercet.program.packing import Packer, StoredWeight
from tercet.program.program import Program
from tercet.program.quantize import quantize
from tercet.program.recipes import Recipe

IMAGE = "image:"
"""Before the key of an image: a model by the image that its executors map, on whatever host."""
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
    """Quantized and fused."""
    fingerprint: str
    """Hex; differs where the weights or the program do."""
    content: str = ""
    """Hex; differs where the checkpoint's files do. Empty for a model without any (`cost`)."""
    tokenizer_source: TokenizerSource
    defaults: SamplingDefaults = NEUTRAL
    image: MappedImage | None = field(default=None, repr=False)
    """None for a model without weights (`cost`), and for one that was opened without a packer."""

    @property
    def image_path(self) -> Path | None:
        """Where its image lies."""
        return None if self.image is None else self.image.path

    def weights(self) -> Mapping[str, StoredWeight]:
        """The program's weights by name, mapped read-only; empty for a model without any."""
        return {} if self.image is None else self.image.weights()


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model whose files are in place, and the image that it wants."""

    located: Located
    checkpoint: Checkpoint
    program: Program
    content: str
    wanted: WantedImage | None
    """None where no device was said."""


def has_weights(source: str) -> bool:
    """False for a model that only a device without weights can play."""
    return not source.startswith(COST)


def open_model(
    source: str,
    *,
    cache: ModelCacheConfig,
    packer: Packer | None = None,
    quantization: str = "auto",
    progress: StageProgress | None = None,
) -> OpenedModel:
    """The model that `source` names, fetched, checked, its image built: whatever is missing.

    The image is the packer's device's; without a packer there is none, and the model is opened as
    far as text needs it. `Invalid` says in a sentence what is wrong, with file and tensor where
    one is at fault.
    """
    if not has_weights(source):
        return _open_cost(source)
    if source.startswith(IMAGE):
        return _open_image(source, cache=cache, packer=packer)
    plan = plan_model(
        source, cache=cache, packer=packer, quantization=quantization, progress=progress
    )
    image = None
    if plan.wanted is not None:
        building = _stage(progress, "build")
        image = ensure_image(plan.checkpoint, plan.wanted, Shelf(cache), building)
    facts = plan.checkpoint.facts()
    return OpenedModel(
        name=plan.located.name,
        location=plan.located.location,
        kind=facts.kind,
        shape=facts.shape,
        program=plan.program,
        fingerprint=_hash("model", plan.content, plan.program.encoded()),
        content=plan.content,
        tokenizer_source=facts.tokenizer,
        defaults=facts.defaults,
        image=image,
    )


def plan_model(
    source: str,
    *,
    cache: ModelCacheConfig,
    packer: Packer | None = None,
    quantization: str = "auto",
    progress: StageProgress | None = None,
) -> ModelPlan:
    """What `open_model` would open: its files fetched and checked, its image not looked for."""
    located = locate(source, cache, _stage(progress, "fetch"))
    checkpoint = open_checkpoint(located.location, OutlineCache(cache.outlines))
    facts = checkpoint.facts()
    formats: dict[str, Format] = {}
    if packer is not None:
        formats = choose_formats(
            build(facts.shape),
            quantization,
            tensor_type=lambda name: checkpoint.describe(name).dtype,
            plain=packer.plain,
        )
    program = _program(facts.shape, formats, packer)
    content = _content(checkpoint, DigestCache(cache.digests), _stage(progress, "check"))
    wanted = None
    if packer is not None:
        recipes = program.weights
        wanted = WantedImage(
            key=_hash("image", str(LAYOUT_VERSION), packer.name, content, _spell(recipes)),
            recipes=recipes,
            packer=packer,
            source=located.name,
            quantization=quantization,
            about=About(
                kind=facts.kind,
                content=content,
                shape=facts.shape,
                formats=formats,
                defaults=facts.defaults,
            ),
        )
    return ModelPlan(located, checkpoint, program, content, wanted)


def _program(shape: ModelShape, formats: Mapping[str, Format], packer: Packer | None) -> Program:
    program = fuse(quantize(build(shape), formats) if packer is not None else build(shape))
    return program if packer is None else packer.arrange(program)


def _open_image(source: str, *, cache: ModelCacheConfig, packer: Packer | None) -> OpenedModel:
    """The model of an image that is on this host's shelf, without its checkpoint: for executors."""
    key = source.removeprefix(IMAGE)
    image = Shelf(cache).hold(key) if packer is not None else None
    if image is None or packer is None or image.header.packer != packer.name:
        raise Invalid(
            f"There is no model image {key} for this device on this host's shelf ({cache.images}).",
            code="no_model_image",
            parameter=source,
        )
    about = image.header.about
    program = _program(about.shape, about.formats, packer)
    return OpenedModel(
        name=image.header.source,
        location=source,
        kind=about.kind,
        shape=about.shape,
        program=program,
        fingerprint=_hash("model", about.content, program.encoded()),
        content=about.content,
        tokenizer_source="bytes",
        defaults=about.defaults,
        image=image,
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
        fingerprint=_hash("cost", program.encoded()),
        tokenizer_source="bytes",
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


def _hash(*parts: str | bytes) -> str:
    """A digest of parts that cannot be shifted into each other."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:32]


def _stage(progress: StageProgress | None, stage: str) -> Progress | None:
    if progress is None:
        return None
    report = progress
    return lambda done, total: report(stage, done, total)
