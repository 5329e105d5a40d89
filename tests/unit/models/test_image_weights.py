"""What an image holds, as a digest: the same whoever built it, another where a weight differs."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tercet.base.errors import Invalid
from tercet.devices.reference.packing import Float32Packer
from tercet.models import ModelCacheConfig, open_model
from tercet.models.image.layout import SEAL_BYTES, encode_header
from tercet.models.image.mapped import MappedImage
from tercet.models.image.shelf import Shelf
from tercet.runtime.config import RuntimeConfig, TreeConfig
from tercet.runtime.opening import cache_of, expect_weights, open_configured

SOURCE = "random:qwen2?seed=3&layers=1"


def built(folder: Path, source: str = SOURCE) -> tuple[Shelf, MappedImage]:
    cache = ModelCacheConfig(folder=folder)
    image = open_model(source, cache=cache, packer=Float32Packer()).image
    assert image is not None
    return Shelf(cache), image


def forge(image: MappedImage, to: Path, *, change: int | None, **said: str) -> None:
    """A whole and sealed image with another head, and where wanted another weight."""
    data = bytearray(image.whole().tobytes())
    header = msgspec.structs.replace(image.header, **said)
    head = encode_header(header)
    assert len(head) == len(encode_header(image.header))
    data[: len(head)] = head
    if change is not None:
        data[change] ^= 1
    data[-SEAL_BYTES:] = hashlib.sha256(data[:-SEAL_BYTES]).digest()
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(data)


def test_it_does_not_depend_on_who_built_the_image(tmp_path: Path) -> None:
    here, image = built(tmp_path / "here")
    there = Shelf(ModelCacheConfig(folder=tmp_path / "there"))
    key = image.header.key
    forge(image, there.path(key), change=None, source=image.header.source.replace("q", "Q"))
    seals = [shelf.path(key).read_bytes()[-SEAL_BYTES:] for shelf in (here, there)]
    assert seals[0] != seals[1]
    assert there.weights(key) == here.weights(key) is not None


def test_a_single_bit_of_a_weight_is_another_digest_under_the_same_key(tmp_path: Path) -> None:
    here, image = built(tmp_path / "here")
    there = Shelf(ModelCacheConfig(folder=tmp_path / "there"))
    key = image.header.key
    forge(image, there.path(key), change=image.header.weights[-1].offset + 1)
    assert there.hold(key) is not None, "whole and sealed: nothing else tells them apart"
    assert there.weights(key) != here.weights(key)


def test_it_is_read_once_for_each_state_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, image = built(tmp_path)
    key = image.header.key
    known = shelf.weights(key)
    with monkeypatch.context() as patched:
        patched.setattr(MappedImage, "digest", lambda _: "read again")
        assert shelf.weights(key) == known
        copy = tmp_path / "copy"
        shutil.copy(shelf.path(key), copy)
        copy.replace(shelf.path(key))
        assert shelf.weights(key) == "read again"


def test_there_is_none_of_an_image_that_is_not_there_or_not_whole(tmp_path: Path) -> None:
    shelf, image = built(tmp_path)
    key = image.header.key
    assert shelf.weights("0" * 32) is None
    damaged = bytearray(image.whole().tobytes())
    damaged[-100] ^= 1
    shelf.path(key).unlink()
    shelf.path(key).write_bytes(damaged)
    assert shelf.weights(key) is None


def test_other_weights_are_refused_in_one_sentence() -> None:
    config = TreeConfig(model="image:abc", cache_folder="", weights="aaaa")
    expect_weights(config, "aaaa", "abc")
    expect_weights(config, None, "abc")
    with pytest.raises(Invalid, match="other weights than the cluster: bbbb, expected aaaa"):
        expect_weights(config, "bbbb", "abc")


def test_a_model_is_not_opened_from_an_image_with_other_weights(tmp_path: Path) -> None:
    """As an executor opens it, whenever the image came to be there."""
    runtime = RuntimeConfig(device="reference")
    config = TreeConfig(model=SOURCE, cache_folder=str(tmp_path), runtime=runtime)
    image = open_configured(config).model.image
    assert image is not None
    key = image.header.key
    expected = Shelf(cache_of(config)).weights(key)
    joined = replace(config, model=f"image:{key}", weights=expected)
    assert open_configured(joined).model.image is not None
    forge(image, tmp_path / "forged", change=image.header.weights[0].offset)
    (tmp_path / "forged").replace(image.path)
    with pytest.raises(Invalid, match=f"expected {expected}"):
        open_configured(joined)
