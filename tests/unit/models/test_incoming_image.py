"""An image that comes from elsewhere is on the shelf whole, or not at all."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tercet.devices.reference.packing import Float32Packer
from tercet.models import ModelCacheConfig, open_model
from tercet.models.image.incoming import IncomingImage, hold_for_lending
from tercet.models.image.layout import LAYOUT_VERSION, MAGIC, PREFIX
from tercet.models.image.shelf import Shelf

SOURCE = "random:llama?seed=5&layers=1"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    model = open_model(
        SOURCE, cache=ModelCacheConfig(folder=tmp_path / "here"), packer=Float32Packer()
    )
    assert model.image_path is not None
    return model.image_path


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(ModelCacheConfig(folder=tmp_path / "there"))


def incoming(shelf: Shelf, original: Path) -> IncomingImage:
    data = np.fromfile(original, np.uint8)
    image = IncomingImage.open(shelf, original.stem, len(data), host="h1")
    image.bytes[:] = data
    return image


def files(shelf: Shelf) -> list[str]:
    return sorted(path.suffix for path in shelf.folder.iterdir())


def test_a_whole_one_is_found_like_one_that_was_built(original: Path, shelf: Shelf) -> None:
    image = incoming(shelf, original)
    assert shelf.hold(original.stem) is None
    assert image.seal() == ""
    lent = hold_for_lending(shelf, original.stem)
    assert lent is not None
    assert lent.tobytes() == original.read_bytes()
    assert files(shelf) == [".image", ".used"]
    cache = ModelCacheConfig(folder=shelf.folder.parent)
    assert open_model(f"image:{original.stem}", cache=cache, packer=Float32Packer()).fingerprint


@pytest.mark.parametrize("place", [3, 5000, -1])
def test_one_wrong_byte_and_nothing_is_kept(original: Path, shelf: Shelf, place: int) -> None:
    image = incoming(shelf, original)
    image.bytes[place] ^= 1
    assert image.seal() != ""
    assert files(shelf) == []


def test_an_image_of_another_key_is_not_kept(original: Path, shelf: Shelf) -> None:
    data = np.fromfile(original, np.uint8)
    image = IncomingImage.open(shelf, "0" * 32, len(data), host="h1")
    image.bytes[:] = data
    assert "no model image of this key" in image.seal()
    assert files(shelf) == []


def test_a_header_nested_beyond_reading_is_none(original: Path, shelf: Shelf) -> None:
    body = b"\x81\xa1z" + b"\x91" * 2000 + b"\xc0"
    head = PREFIX.pack(MAGIC, LAYOUT_VERSION, len(body), hashlib.sha256(body).digest()) + body
    image = incoming(shelf, original)
    image.bytes[: len(head)] = np.frombuffer(head, np.uint8)
    assert "no model image" in image.seal()
    assert files(shelf) == []


def test_what_is_given_up_leaves_nothing(original: Path, shelf: Shelf) -> None:
    incoming(shelf, original).drop()
    assert files(shelf) == []
