"""What a packer may ask for and what an image keeps of it."""

import math
from pathlib import Path

import numpy as np
import pytest
from float32_models import open_float32
from numpy.typing import NDArray
from small_models import TINY

from tercet.base.errors import Invalid, InvariantBroken
from tercet.models.checkpoints.contract import F32, Checkpoint, TensorInfo
from tercet.models.config import ModelCacheConfig
from tercet.models.image.finite import FiniteSource
from tercet.models.opened import OpenedModel, open_model
from tercet.models.sources import open_checkpoint
from tercet.program.formats import Format
from tercet.program.packing import WeightSource
from tercet.program.program import Program
from tercet.program.recipes import Recipe, evaluate, format_of


@pytest.fixture
def cache(tmp_path: Path) -> ModelCacheConfig:
    return ModelCacheConfig(folder=tmp_path / "cache")


class HalfPacker:
    """Two bytes a number, and `more` that it did not announce."""

    plain = Format.BF16

    def __init__(self, name: str = "halves", *, more: int = 0) -> None:
        self.name = name
        self._more = more

    def arrange(self, program: Program) -> Program:
        return program

    def packed_bytes(self, recipe: Recipe) -> int:
        return 2 * math.prod(recipe.shape)

    def pack(self, recipe: Recipe, source: WeightSource) -> NDArray[np.uint8]:
        halves = (evaluate(recipe, source.read).view(np.uint32) >> 16).astype(np.uint16)
        return np.append(halves.reshape(-1).view(np.uint8), np.zeros(self._more, np.uint8))


def opened(cache: ModelCacheConfig, packer: HalfPacker, quantization: str) -> OpenedModel:
    return open_model(TINY, cache=cache, packer=packer, quantization=quantization)


def test_an_image_keeps_bytes_shape_and_format(cache: ModelCacheConfig) -> None:
    model = opened(cache, HalfPacker(), "none")
    checkpoint = open_checkpoint(TINY)
    formats = set()
    for name, stored in model.weights().items():
        recipe = model.program.weights[name]
        assert stored.shape == recipe.shape
        assert stored.format is format_of(recipe)
        assert stored.data.ctypes.data % 64 == 0
        assert not stored.data.flags.writeable
        np.testing.assert_array_equal(stored.data, HalfPacker().pack(recipe, checkpoint))
        formats.add(stored.format)
    assert formats == {Format.BF16, Format.F32}, "matrices are plain, norms float32"


def test_device_and_quantization_have_images_of_their_own(cache: ModelCacheConfig) -> None:
    models = [
        open_float32(TINY, cache=cache),
        opened(cache, HalfPacker(), "none"),
        opened(cache, HalfPacker("other halves"), "none"),
        opened(cache, HalfPacker(), "int8"),
        opened(cache, HalfPacker(), "int4"),
    ]
    assert len({model.image_path for model in models}) == len(models)
    assert len({model.fingerprint for model in models}) == 4, "who packed them says no more"
    assert opened(cache, HalfPacker(), "auto").image_path == models[1].image_path


def test_a_packer_that_breaks_its_word_stops_the_process(cache: ModelCacheConfig) -> None:
    with pytest.raises(InvariantBroken, match="said 33280 bytes"):
        opened(cache, HalfPacker(more=1), "none")
    assert not list(cache.images.iterdir())


def test_an_unknown_quantization_is_said(cache: ModelCacheConfig) -> None:
    with pytest.raises(Invalid, match="quantization is 'int3', expected one of auto, none, int8"):
        opened(cache, HalfPacker(), "int3")


class Spoiled:
    """A checkpoint whose stored scales are not numbers."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.describe = checkpoint.describe
        self.facts = checkpoint.facts
        self.tensor_names = checkpoint.tensor_names

    def read(self, name: str) -> F32:
        shape = self.describe(name).shape
        return np.where(np.arange(math.prod(shape)) == 70, np.inf, 1).reshape(shape)

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        raise AssertionError(name)

    def read_int8(self, name: str) -> tuple[NDArray[np.int8], F32]:
        rows, columns = self.describe(name).shape
        scales = np.ones(rows, np.float32)
        scales[3] = np.nan
        return np.zeros((rows, columns), np.int8), scales


def test_stored_numbers_are_as_finite_as_read_ones() -> None:
    name = "model.embed_tokens.weight"
    source = FiniteSource(Spoiled(open_checkpoint(TINY)))
    info: TensorInfo = source.describe(name)
    assert info.shape == (260, 64)
    for read in (source.read, source.read_blocks):
        with pytest.raises(Invalid, match=rf"{name}' with the value inf at \[1, 6\]"):
            read(name)
    with pytest.raises(Invalid, match=rf"{name}' with the value nan at \[3\]"):
        source.read_int8(name)


def test_what_is_stored_otherwise_is_said() -> None:
    source = FiniteSource(open_checkpoint(TINY))
    for read, what in ((source.read_blocks, "blocks"), (source.read_int8, "8-bit integers")):
        with pytest.raises(Invalid, match=f"as F32, not in {what}"):
            read("model.norm.weight")
