"""Models: from what a person names to a program with its weights.

Is: families of models (shape -> program), checkpoints (Hugging Face layout, GGUF, random), the
registry of names, and the model image: the program's weights as a device wants them, built once,
mapped read-only by every process. `open_model` is the door.
Is not: a tokenizer (`text`), or anything that computes (`devices`).
May import: base, program.
"""

from tercet.models.config import ModelCacheConfig
from tercet.models.opened import OpenedModel, has_weights, open_model

__all__ = ["ModelCacheConfig", "OpenedModel", "has_weights", "open_model"]
