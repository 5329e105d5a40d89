"""Models opened for the reference device, all weights in float32."""

import numpy as np
from numpy.typing import NDArray

from tercet.devices.reference.packing import Float32Packer, float32_values
from tercet.models import ModelCacheConfig, OpenedModel, open_model
from tercet.models.opened import StageProgress


def open_float32(
    source: str, *, cache: ModelCacheConfig, progress: StageProgress | None = None
) -> OpenedModel:
    """The model with its image, nothing quantized."""
    return open_model(
        source, cache=cache, packer=Float32Packer(), quantization="none", progress=progress
    )


def float32_weights(model: OpenedModel) -> dict[str, NDArray[np.float32]]:
    """The weights by name, in place."""
    return {name: float32_values(stored) for name, stored in model.weights().items()}
