"""The device and the model that a configuration means: the same for all who open it."""

from dataclasses import dataclass
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.devices.choose import choose_device, resolve_device
from tercet.devices.contract import CompileOptions, Device
from tercet.models import ModelCacheConfig, OpenedModel, has_weights, open_model
from tercet.models.image.shelf import Shelf
from tercet.models.opened import StageProgress
from tercet.runtime.config import TreeConfig


@dataclass(frozen=True, slots=True)
class Opened:
    """A device, and a model whose weights are stored for it."""

    device: Device
    model: OpenedModel
    options: CompileOptions


def open_configured(
    config: TreeConfig, *, threads: int | None = None, progress: StageProgress | None = None
) -> Opened:
    """Whatever is missing is fetched, checked and built; `Invalid` says what cannot be served."""
    weighty = has_weights(config.model)
    kind = resolve_device(config.runtime.device, has_weights=weighty)
    device = choose_device(kind, has_weights=weighty, cost=config.cost)
    options = CompileOptions(kv_dtype=config.runtime.kv_dtype, threads=threads)
    device.check(options)
    model = open_model(
        config.model,
        cache=cache_of(config),
        packer=device.packer(),
        quantization=config.runtime.quantization,
        progress=progress,
    )
    image = model.image
    if config.weights and image is not None:
        key = image.header.key
        expect_weights(config, Shelf(cache_of(config)).weights(key), key)
    return Opened(device, model, options)


def expect_weights(config: TreeConfig, found: str | None, key: str) -> None:
    """Raise `Invalid` if the image of this key has other weights than the configuration wants."""
    if found not in {None, config.weights}:
        raise Invalid(
            f"This host's image {key} has other weights than the cluster: {found}, expected "
            f"{config.weights}. Without it (tercet images rm {key}) they come from the cluster.",
            code="other_weights",
        )


def cache_of(config: TreeConfig) -> ModelCacheConfig:
    """The model cache that the configuration names."""
    return ModelCacheConfig(
        folder=Path(config.cache_folder), images_bytes_max=config.images_bytes_max
    )
