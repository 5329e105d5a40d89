"""A model opened by its image alone, on a host that has no checkpoint."""

import shutil
from pathlib import Path

import pytest

from tercet.base.errors import Invalid
from tercet.devices.reference.packing import Float32Packer
from tercet.models import ModelCacheConfig, open_model
from tercet.models.image.shelf import Shelf

SOURCE = "random:qwen2?seed=3&layers=1"


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_it_is_the_same_model_without_its_checkpoint(tmp_path: Path, quantization: str) -> None:
    here = ModelCacheConfig(folder=tmp_path / "here")
    there = ModelCacheConfig(folder=tmp_path / "there")
    packer = Float32Packer()
    original = open_model(SOURCE, cache=here, packer=packer, quantization=quantization)
    assert original.image is not None
    key = original.image.header.key
    there.images.mkdir(parents=True)
    shutil.copy(original.image.path, Shelf(there).path(key))
    copy = open_model(f"image:{key}", cache=there, packer=packer)
    assert copy.fingerprint == original.fingerprint
    assert copy.program.encoded() == original.program.encoded()
    assert copy.shape == original.shape
    assert copy.defaults == original.defaults
    for name, stored in original.weights().items():
        assert copy.weights()[name].data.tobytes() == stored.data.tobytes()


def test_an_image_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    cache = ModelCacheConfig(folder=tmp_path)
    with pytest.raises(Invalid, match="no model image abcd for this device"):
        open_model("image:abcd", cache=cache, packer=Float32Packer())


def test_an_image_of_another_device_is_refused(tmp_path: Path) -> None:
    cache = ModelCacheConfig(folder=tmp_path)
    original = open_model(SOURCE, cache=cache, packer=Float32Packer())
    assert original.image is not None

    class Other(Float32Packer):
        name = "other"

    with pytest.raises(Invalid, match="for this device"):
        open_model(f"image:{original.image.header.key}", cache=cache, packer=Other())
