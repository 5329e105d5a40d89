"""What a checkpoint answers, whatever it is made of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tercet.base.errors import Invalid
from tercet.base.model import NEUTRAL, ModelShape, SamplingDefaults

F32 = NDArray[np.float32]
TokenizerSource: TypeAlias = Mapping[str, object] | Path | Literal["bytes"]
"""What `text` makes a tokenizer of: a GGUF file's metadata as plain values under their keys
(`tokenizer.ggml.model`, ...), a folder in Hugging Face layout, or plain bytes (base.tokenizer)."""


class TensorInfo(Struct, frozen=True, kw_only=True):
    """A tensor as it lies in a file."""

    name: str
    """Canonical name, that of the Hugging Face layout."""
    shape: tuple[int, ...]
    dtype: str
    """Name of the element type in the file: `BF16`, `Q4_1`, ..."""
    file: str
    """Path of the file that holds it, for messages."""


class CheckpointFacts(Struct, frozen=True, kw_only=True):
    """What is known of a checkpoint without reading a tensor."""

    kind: str
    """`huggingface`, `gguf` or `random`."""
    path: str
    """The folder or file, for messages."""
    shape: ModelShape
    tokenizer: TokenizerSource
    defaults: SamplingDefaults = NEUTRAL
    files: tuple[str, ...]
    """The files whose content decides the tensors, in a fixed order."""
    identity: str
    """What decides the tensors besides the files' content (the numbers of a random model)."""


class Checkpoint(Protocol):
    """Named tensors with a shape; `read` may be called in any order and any number of times."""

    def facts(self) -> CheckpointFacts:
        """What is known without reading a tensor."""
        ...

    def tensor_names(self) -> Sequence[str]:
        """Canonical names of all tensors."""
        ...

    def describe(self, name: str) -> TensorInfo:
        """Shape, type and file of one tensor; `Invalid` if there is none of that name."""
        ...

    def read(self, name: str) -> F32:
        """The tensor in float32, row-major, the caller's to keep; `Invalid` if it can't be."""
        ...

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """[rows, bytes of a row] of a tensor that is stored in a GGUF block type, the rows in the
        order of `read`; `Invalid` for another one.
        """
        ...

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        """[N, K] and the scales [N] of a tensor that is stored so (compressed-tensors); `Invalid`
        for another one.
        """
        ...


def with_path(path: str, error: Invalid) -> Invalid:
    """The same error, its sentence beginning with the file or folder that it is about."""
    sentence = f"{path}: {error.sentence.removesuffix('.')}."
    return Invalid(sentence, code=error.code, parameter=path)


def missing_tensor(path: str, name: str) -> Invalid:
    """The error for a tensor that the model needs and the checkpoint lacks."""
    return bad_checkpoint(path, f"holds no tensor {name!r}, which the model needs")


def stored_otherwise(info: TensorInfo, wanted: str) -> Invalid:
    """The error for a tensor that is asked for as it is not stored."""
    return bad_checkpoint(info.file, f"holds tensor {info.name!r} as {info.dtype}, not {wanted}")


def bad_checkpoint(path: str, what: str) -> Invalid:
    """The error for a file that can't be used: one sentence, the file first."""
    return Invalid(f"{path} {what}.", code="invalid_checkpoint", parameter=path)
