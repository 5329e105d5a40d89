"""A model in Hugging Face layout: a folder with config.json and safetensors, whole or sharded."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tercet.base.errors import Invalid
from tercet.base.model import NEUTRAL, ModelShape, SamplingDefaults
from tercet.models.checkpoints.compressed import SCALE, WEIGHT, is_int8
from tercet.models.checkpoints.contract import (
    F32,
    CheckpointFacts,
    TensorInfo,
    bad_checkpoint,
    missing_tensor,
    stored_otherwise,
    with_path,
)
from tercet.models.checkpoints.files import read_piece, size_of
from tercet.models.checkpoints.safetensors_file import DTYPES, SafetensorsFile, open_safetensors
from tercet.models.families.fields import Fields
from tercet.models.families.hf_shape import shape_from_hf

CONFIG = "config.json"
GENERATION = "generation_config.json"
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
JSON_BYTES_MAX = 64 << 20
SHARDS_MAX = 10_000
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PLAIN_NAME = re.compile(r"[\w.-]+\.safetensors")


class FolderCheckpoint:
    """A folder whose files are all there and whose headers are consistent."""

    def __init__(
        self,
        facts: CheckpointFacts,
        files: dict[str, SafetensorsFile],
        names: dict[str, str],
        *,
        scales: dict[str, str],
    ) -> None:
        self._facts = facts
        self._scales = scales
        """The tensor with the scales of each one in INT8, canonical names both."""
        self._files = files
        """The file of each tensor, by canonical name."""
        self._names = names
        """The name in the file, by canonical name."""

    def facts(self) -> CheckpointFacts:
        """What is known without reading a tensor."""
        return self._facts

    def tensor_names(self) -> Sequence[str]:
        """Canonical names of all tensors."""
        scales = frozenset(self._scales.values())
        return [name for name in self._files if name not in scales]

    def describe(self, name: str) -> TensorInfo:
        """Shape, type and file of one tensor."""
        return self._find(name).describe(self._names[name])

    def read(self, name: str) -> F32:
        """The tensor in float32; integers times their scales."""
        if name not in self._scales:
            return self._find(name).read(self._names[name])
        codes, scales = self.read_int8(name)
        return codes.astype(np.float32) * scales[:, None]

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """There are no blocks in this layout."""
        raise stored_otherwise(self.describe(name), "in blocks")

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        """Integers [N, K] and scales [N] of a tensor in INT8."""
        if name not in self._scales:
            raise stored_otherwise(self.describe(name), "in 8-bit integers")
        scale = self._scales[name]
        codes = self._find(name).read_integers(self._names[name])
        scales = self._find(scale).read(self._names[scale]).reshape(-1)
        return codes, np.ascontiguousarray(np.broadcast_to(scales, codes.shape[:1]))

    def _find(self, name: str) -> SafetensorsFile:
        file = self._files.get(name)
        if file is None:
            raise missing_tensor(self._facts.path, name)
        return file


def open_folder(path: Path) -> FolderCheckpoint:
    """The checkpoint of the folder; `Invalid` says which file is missing or wrong."""
    config = read_object(path / CONFIG)
    generation = read_object(path / GENERATION) if (path / GENERATION).exists() else {}
    located = _locate(path)
    prefixed = any(name.startswith("model.") for name in located)
    names = {_canonical(name, prefixed=prefixed): name for name in located}
    files = {canonical: located[name] for canonical, name in names.items()}
    scales = _scales(path, files, names) if _is_int8(path, config) else {}
    facts = CheckpointFacts(
        kind="huggingface",
        path=str(path),
        shape=_shape(path, config, generation, num_tensors=len(files)),
        tokenizer=path,
        defaults=_defaults(path, generation),
        files=tuple(dict.fromkeys(str(file.path) for file in located.values())),
        identity="huggingface",
    )
    return FolderCheckpoint(facts, files, names, scales=scales)


def _is_int8(path: Path, config: dict[str, object]) -> bool:
    try:
        return is_int8(config)
    except Invalid as error:
        raise with_path(str(path), error) from None


def _scales(path: Path, files: dict[str, SafetensorsFile], names: dict[str, str]) -> dict[str, str]:
    """The scales of every tensor of integers, each of a shape that fits."""
    scales: dict[str, str] = {}
    for name, file in files.items():
        entry = file.entries[names[name]]
        if entry.dtype != "I8":
            continue
        scale = f"{name.removesuffix(WEIGHT)}{SCALE}"
        if not name.endswith(WEIGHT) or scale not in files:
            raise bad_checkpoint(str(path), f"holds tensor {name!r} as I8 without {scale!r}")
        found = files[scale].entries[names[scale]]
        fits = len(entry.shape) == 2 and found.shape in ([entry.shape[0], 1], entry.shape[:1], [1])
        if not fits or found.dtype not in DTYPES:
            raise bad_checkpoint(
                str(path),
                f"holds tensor {name!r} of shape {entry.shape} with scales of shape "
                f"{found.shape} as {found.dtype}",
            )
        scales[name] = scale
    return scales


def _shape(
    path: Path, config: dict[str, object], generation: dict[str, object], *, num_tensors: int
) -> ModelShape:
    """The shape that both configurations give; end tokens are those that either names."""
    try:
        shape = shape_from_hf(config)
        more = Fields(generation, GENERATION).ids("eos_token_id")
    except Invalid as error:
        raise with_path(str(path), error) from None
    if shape.num_layers > num_tensors:
        raise bad_checkpoint(
            str(path), f"holds {num_tensors} tensors, {CONFIG} speaks of {shape.num_layers} layers"
        )
    return msgspec.structs.replace(shape, end_ids=tuple(dict.fromkeys(more + shape.end_ids)))


def _defaults(path: Path, generation: dict[str, object]) -> SamplingDefaults:
    """What the generation config recommends, within what the API itself would take."""
    fields = Fields(generation, GENERATION)
    try:
        return SamplingDefaults(
            temperature=fields.within("temperature", 0.0, 2.0, NEUTRAL.temperature),
            top_k=int(fields.within("top_k", -1, 2**31 - 1, NEUTRAL.top_k)),
            top_p=fields.within("top_p", 0.0, 1.0, NEUTRAL.top_p),
            min_p=fields.within("min_p", 0.0, 1.0, NEUTRAL.min_p),
            repetition_penalty=fields.within(
                "repetition_penalty", 0.01, 100.0, NEUTRAL.repetition_penalty
            ),
        )
    except Invalid as error:
        raise with_path(str(path), error) from None


def read_object(path: Path) -> dict[str, object]:
    """The object of a JSON file of modest size."""
    size = size_of(path)
    if size > JSON_BYTES_MAX:
        raise bad_checkpoint(str(path), f"has {size} bytes, expected at most {JSON_BYTES_MAX}")
    try:
        return msgspec.json.decode(read_piece(path, 0, size, "it"), type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_checkpoint(str(path), f"is no JSON object ({error})") from None


def _canonical(name: str, *, prefixed: bool) -> str:
    """The name with the prefix that a bare transformer is saved without."""
    return name if prefixed or name.startswith("lm_head.") else f"model.{name}"


def _locate(path: Path) -> dict[str, SafetensorsFile]:
    """The file of every tensor, by the name in the file."""
    if (path / WHOLE).exists():
        file = open_safetensors(path / WHOLE)
        return dict.fromkeys(file.entries, file)
    if (path / INDEX).exists():
        return _locate_shards(path)
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise bad_checkpoint(str(path), f"cannot be read: {error.strerror}") from None
    pickled = [name for name in names if name.endswith(PICKLED)]
    if pickled:
        raise bad_checkpoint(
            str(path),
            f"holds pickled weights only ({pickled[0]}), which can run any code when they are "
            f"loaded and are not read; expected {WHOLE} or {INDEX}",
        )
    raise bad_checkpoint(
        str(path),
        f"holds no weights: expected {WHOLE} or {INDEX} (a .gguf file is served by its own path)",
    )


def _locate_shards(path: Path) -> dict[str, SafetensorsFile]:
    index = path / INDEX
    try:
        weight_map = msgspec.convert(read_object(index).get("weight_map"), dict[str, str])
    except msgspec.ValidationError as error:
        raise bad_checkpoint(str(index), f"has no valid weight_map ({error})") from None
    if len(set(weight_map.values())) > SHARDS_MAX:
        raise bad_checkpoint(str(index), f"names more than {SHARDS_MAX} files")
    shards: dict[str, SafetensorsFile] = {}
    for name, shard in weight_map.items():
        if _PLAIN_NAME.fullmatch(shard) is None:
            raise bad_checkpoint(
                str(index), f"places tensor {name!r} in {shard!r}, expected a .safetensors file"
            )
        if shard not in shards:
            if not (path / shard).exists():
                raise bad_checkpoint(
                    str(path / shard), f"is missing; {INDEX} places tensor {name!r} in it"
                )
            shards[shard] = open_safetensors(path / shard)
        if name not in shards[shard].entries:
            raise bad_checkpoint(
                str(path / shard), f"holds no tensor {name!r}, which {INDEX} places in it"
            )
    return {name: shards[shard] for name, shard in weight_map.items()}
