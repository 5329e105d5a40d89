"""The model that everything here is measured with."""

import os
from pathlib import Path

from tercet.devices.reference.packing import Float32Packer
from tercet.models import ModelCacheConfig, OpenedModel, open_model

NAME = "smollm2"


def cache() -> ModelCacheConfig:
    """The model cache of the person who runs this."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return ModelCacheConfig(folder=Path(root) / "tercet")


def opened() -> OpenedModel:
    """SmolLM2-135M-Instruct in float32, fetched and its image built if need be."""
    return open_model(NAME, cache=cache(), packer=Float32Packer(), quantization="none")


def checkpoint_file() -> Path:
    """The file that its weights come from."""
    return Path(opened().location)
