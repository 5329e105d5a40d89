"""Families of models: from the shape of a model to the program of its step.

Is: one function per family, and what a Hugging Face configuration or GGUF metadata says about the
shape. Is not: reading files or weights (`models`), running anything (`devices`).
May import: base, program.
"""

from tercet.models.families.build import FAMILIES, SUPPORTED, build
from tercet.models.families.gguf_names import (
    ROPE_FACTORS,
    gguf_name,
    gguf_tensor,
    permuted_heads,
    unpermute,
)
from tercet.models.families.gguf_shape import shape_from_gguf
from tercet.models.families.hf_shape import shape_from_hf

__all__ = [
    "FAMILIES",
    "ROPE_FACTORS",
    "SUPPORTED",
    "build",
    "gguf_name",
    "gguf_tensor",
    "permuted_heads",
    "shape_from_gguf",
    "shape_from_hf",
    "unpermute",
]
