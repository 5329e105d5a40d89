"""The folder of images: what is in use stays, what is unused for longest goes, damage is told."""

import errno
import gc
import hashlib
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from float32_models import float32_weights, open_float32
from small_models import TINY, tiny_tensors

from tercet.base.errors import Invalid
from tercet.models.config import ModelCacheConfig
from tercet.models.digests import DigestCache, file_state
from tercet.models.image.shelf import Removal, Shelf, Verdict
from tercet.models.opened import OpenedModel
from tercet.program.recipes import evaluate

SIZE = 600_000
"""More than an image of `TINY`, less than two of them."""


@pytest.fixture
def cache(tmp_path: Path) -> ModelCacheConfig:
    return ModelCacheConfig(folder=tmp_path / "cache")


def seeded(seed: int) -> str:
    return TINY.replace("seed=1", f"seed={seed}")


def limited(cache: ModelCacheConfig, images: float) -> ModelCacheConfig:
    """The same cache with room for so many images."""
    size = (open_float32(TINY, cache=cache).image_path or Path()).stat().st_size
    return ModelCacheConfig(folder=cache.folder, images_bytes_max=int(size * images))


def key_of(model: OpenedModel) -> str:
    return (model.image_path or Path()).stem


def put(cache: ModelCacheConfig, seed: int, *, used: float) -> str:
    """An image that was last used so long ago; its key."""
    key = key_of(open_float32(seeded(seed), cache=cache))
    mark = cache.images / f"{key}.used"
    now = mark.stat().st_mtime
    os.utime(mark, (now - used, now - used))
    return key


def keys(cache: ModelCacheConfig) -> set[str]:
    return {path.stem for path in cache.images.glob("*.image")}


def test_an_image_says_what_it_is(cache: ModelCacheConfig) -> None:
    model = open_float32(TINY, cache=cache)
    (entry,) = Shelf(cache).entries()
    assert (entry.key, entry.size, entry.in_use) == (
        key_of(model),
        (model.image_path or Path()).stat().st_size,
        True,
    )
    assert entry.header is not None
    header = entry.header
    assert (header.source, header.quantization, header.packer) == (model.name, "none", "float32")
    assert {one.format.value for one in header.weights} == {"f32"}


def test_in_use_as_long_as_one_weight_lives(cache: ModelCacheConfig) -> None:
    shelf = Shelf(cache)
    model = open_float32(TINY, cache=cache)
    key = key_of(model)
    weight = next(iter(model.weights().values())).data
    del model
    gc.collect()
    assert shelf.entries()[0].in_use
    assert shelf.remove(key) is Removal.IN_USE
    assert weight.sum() > 0
    del weight
    gc.collect()
    assert not shelf.entries()[0].in_use
    assert shelf.remove(key) is Removal.REMOVED
    assert shelf.remove(key) is Removal.ABSENT
    assert not list(cache.images.iterdir()), "its mark of use goes with it"


def test_the_least_recently_used_makes_room(cache: ModelCacheConfig) -> None:
    cache = limited(cache, 3.5)
    old, older, fresh = put(cache, 1, used=50), put(cache, 2, used=90), put(cache, 3, used=1)
    new = key_of(open_float32(seeded(4), cache=cache))
    assert keys(cache) == {old, fresh, new}
    open_float32(seeded(1), cache=cache)
    newer = key_of(open_float32(seeded(5), cache=cache))
    assert keys(cache) == {old, new, newer}, "opening an image is a use"
    assert older not in keys(cache)


def test_what_nobody_can_use_goes_first(cache: ModelCacheConfig) -> None:
    cache = limited(cache, 3.5)
    oldest, damaged, _ = put(cache, 1, used=90), put(cache, 2, used=1), put(cache, 3, used=50)
    (cache.images / f"{damaged}.image").write_bytes(b"x" * SIZE)
    put(cache, 4, used=0)
    assert damaged not in keys(cache)
    assert oldest in keys(cache)


def test_an_image_in_use_stays_whatever_the_limit(cache: ModelCacheConfig) -> None:
    cache = limited(cache, 0.5)
    used = open_float32(TINY, cache=cache)
    unused = put(cache, 2, used=1)
    third = open_float32(seeded(3), cache=cache)
    assert keys(cache) == {key_of(used), key_of(third)}, "the new one is built over the limit, too"
    assert unused not in keys(cache)


def test_a_damaged_image_in_its_own_place_counts_for_nothing(cache: ModelCacheConfig) -> None:
    cache = limited(cache, 2.5)
    mine, other = put(cache, 1, used=1), put(cache, 2, used=90)
    (cache.images / f"{mine}.image").write_bytes(b"x" * 2 * SIZE)
    open_float32(TINY, cache=cache)
    assert keys(cache) == {mine, other}


def test_leftovers_are_swept_and_builders_left_alone(cache: ModelCacheConfig) -> None:
    kept = put(cache, 1, used=1)
    left = cache.images / "dead.partial"
    left.write_bytes(b"half")
    (cache.images / "gone.used").touch()
    (cache.images / "a note").touch()
    seen: list[bool] = []

    def building(stage: str, done: int, total: int) -> None:
        if stage == "build" and done < total:
            Shelf(cache).sweep()
            seen.append(len(list(cache.images.glob("*.partial"))) == 1)

    built = key_of(open_float32(seeded(2), cache=cache, progress=building))
    assert seen
    assert all(seen), "only the one that is being built is there, swept or not"
    names = {f"{key}{suffix}" for key in (kept, built) for suffix in (".image", ".used")}
    assert {path.name for path in cache.images.iterdir()} == {*names, "a note"}


def cut(content: bytearray) -> None:
    del content[-1:]


def lengthen(content: bytearray) -> None:
    content += b"\0"


def flip_weight(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def flip_seal(content: bytearray) -> None:
    content[-1] ^= 1


def flip_header(content: bytearray) -> None:
    content[60] ^= 1


def flip_magic(content: bytearray) -> None:
    content[0] ^= 1


def flip_version(content: bytearray) -> None:
    struct.pack_into("<I", content, 8, 1)


def empty(content: bytearray) -> None:
    content.clear()


DAMAGES = [cut, lengthen, flip_weight, flip_seal, flip_header, flip_magic, flip_version, empty]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_that_the_file_system_does_not_tell_is_verified(
    cache: ModelCacheConfig, damage: Callable[[bytearray], None]
) -> None:
    """A bit that rots changes no time: the sum that is remembered is not believed."""
    shelf = Shelf(cache)
    key = put(cache, 1, used=1)
    assert shelf.verify(key) is Verdict.WHOLE
    path = shelf.path(key)
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    DigestCache(cache.digests).remember(path, file_state(path), key)
    assert shelf.verify(key) is Verdict.DAMAGED
    assert shelf.hold(key) is None, "what was found is remembered"
    for name, values in float32_weights(open_float32(TINY, cache=cache)).items():
        assert np.isfinite(values).all(), name
    assert shelf.verify(key) is Verdict.WHOLE


def test_an_image_of_another_layout_is_not_called_damaged(cache: ModelCacheConfig) -> None:
    shelf = Shelf(cache)
    key = put(cache, 1, used=1)
    content = bytearray(shelf.path(key).read_bytes())
    flip_version(content)
    content[-32:] = hashlib.sha256(content[:-32]).digest()
    shelf.path(key).write_bytes(content)
    assert shelf.verify(key) is Verdict.OTHER_LAYOUT
    assert shelf.entries()[0].layout == 1
    assert shelf.hold(key) is None
    assert shelf.verify("0" * 32) is Verdict.ABSENT


def test_opening_and_removing_at_once_never_gives_half_an_image(cache: ModelCacheConfig) -> None:
    shelf = Shelf(cache)
    key = put(cache, 1, used=1)
    over = threading.Event()
    removals: list[Removal] = []

    def remove() -> None:
        while not over.is_set():
            removals.append(shelf.remove(key))

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        expected = tiny_tensors()
        for _ in range(25):
            model = open_float32(TINY, cache=cache)
            weights = float32_weights(model)
            name, recipe = next(iter(model.program.weights.items()))
            np.testing.assert_array_equal(weights[name], evaluate(recipe, expected.__getitem__))
            del model, weights
    finally:
        over.set()
        remover.join()
    assert Removal.REMOVED in removals


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_sentence(
    cache: ModelCacheConfig, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(Invalid, match=rf"{os.strerror(code)}\. `tercet images rm` makes room\."):
        open_float32(TINY, cache=cache)
    assert not list(cache.images.iterdir())


def test_a_file_system_that_cannot_reserve_room_will_do(
    cache: ModelCacheConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    assert open_float32(TINY, cache=cache).weights()


def test_a_disk_that_fails_under_the_writer_leaves_nothing(
    cache: ModelCacheConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Invalid, match=r"cannot be written to .*: Input/output error"):
        open_float32(TINY, cache=cache)
    assert not list(cache.images.iterdir())
