"""Scaling of rotary frequencies: what each frequency is divided by."""

import math

from tercet.base.model import ModelShape, RopeScaling


def divisors(shape: ModelShape) -> tuple[float, ...]:
    """Divisors of the head_dim/2 frequencies; empty where nothing is scaled."""
    if shape.rope_scaling is None:
        return shape.rope_divisors
    pairs = shape.head_dim // 2
    return tuple(
        _llama3(shape.rope_theta ** (2 * index / shape.head_dim), shape.rope_scaling)
        for index in range(pairs)
    )


def _llama3(inverse: float, scaling: RopeScaling) -> float:
    """Llama 3.1: waves longer than the old context are stretched, short ones kept, between them
    the frequency goes over smoothly (transformers `_compute_llama3_parameters`).
    """
    wavelength = 2 * math.pi * inverse
    if wavelength < scaling.original_context / scaling.high_freq_factor:
        return 1.0
    if wavelength > scaling.original_context / scaling.low_freq_factor:
        return scaling.factor
    smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return 1.0 / ((1.0 - smooth) / scaling.factor + smooth)
