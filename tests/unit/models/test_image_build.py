"""Model images: what is built, what is refused, and what is never used."""

import fcntl
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from float32_models import float32_weights, open_float32
from small_models import TINY, tiny_tensors, write_folder, write_gguf

from tercet.base.errors import Invalid
from tercet.models.checkpoints.contract import F32
from tercet.models.config import ModelCacheConfig
from tercet.models.locks import locked_file
from tercet.models.opened import OpenedModel
from tercet.program.recipes import evaluate

GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.fixture
def cache(tmp_path: Path) -> ModelCacheConfig:
    return ModelCacheConfig(folder=tmp_path / "cache")


def assert_holds(model: OpenedModel, tensors: dict[str, F32]) -> None:
    weights = float32_weights(model)
    assert set(weights) == set(model.program.weights)
    for name, recipe in model.program.weights.items():
        np.testing.assert_array_equal(weights[name], evaluate(recipe, tensors.__getitem__))
        assert weights[name].dtype == np.float32
        assert weights[name].ctypes.data % 64 == 0
        assert not weights[name].flags.writeable


@pytest.mark.parametrize("source", [TINY, "random:qwen2", "random:qwen3?tied=1"])
def test_holds_the_program_s_weights(cache: ModelCacheConfig, source: str) -> None:
    assert_holds(open_float32(source, cache=cache), tiny_tensors(source))


def test_all_layouts_give_the_same_weights(cache: ModelCacheConfig, tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path / "hf", num_shards=2))
    file = str(write_gguf(tmp_path / "a.gguf"))
    opened = [open_float32(source, cache=cache) for source in (folder, file)]
    for model in opened:
        assert_holds(model, tiny_tensors())
    assert [model.kind for model in opened] == ["huggingface", "gguf"]
    assert opened[0].fingerprint != opened[1].fingerprint


def test_equal_recipes_share_memory(cache: ModelCacheConfig) -> None:
    model = open_float32(TINY + "&tied=1", cache=cache)
    weights = float32_weights(model)
    places = [weight.ctypes.data for weight in weights.values()]
    recipes = model.program.weights
    assert len(set(places)) == len(set(recipes.values()))
    assert model.image is not None
    header = model.image.header
    table = 4 * 260 * 64
    assert header.size < sum(weight.nbytes for weight in weights.values()) + 20_000
    untied = open_float32(TINY, cache=cache).image
    assert untied is not None
    assert untied.header.size >= header.size + table - 1000


def test_is_built_once_with_progress(cache: ModelCacheConfig, tmp_path: Path) -> None:
    source = str(write_folder(tmp_path / "hf"))
    seen: list[tuple[str, int, int]] = []
    first = open_float32(source, cache=cache, progress=lambda *step: seen.append(step))
    built = [step for step in seen if step[0] == "build"]
    assert built[-1][1] == built[-1][2] == (first.image_path or Path()).stat().st_size
    assert [step[1] for step in built] == sorted(step[1] for step in built)
    before = (first.image_path or Path()).stat().st_ino
    seen.clear()
    again = open_float32(source, cache=cache, progress=lambda *step: seen.append(step))
    assert not [step for step in seen if step[0] == "build"]
    assert again.fingerprint == first.fingerprint
    assert (again.image_path or Path()).stat().st_ino == before
    left = {path.suffix for path in cache.images.iterdir()}
    assert left == {".image", ".used"}, "nothing half is left"


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_seal(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def zero_tail(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)


def flip_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


def other_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 8, 99)
    path.write_bytes(content)


def nonsense(path: Path) -> None:
    path.write_bytes(b"not an image at all")


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [truncate, cut_seal, zero_tail, flip_weight, flip_header, other_version, nonsense, empty]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_image_is_rebuilt(cache: ModelCacheConfig, damage) -> None:
    model = open_float32(TINY, cache=cache)
    path = model.image_path or Path()
    content = path.read_bytes()
    damage(path)
    assert path.read_bytes() != content
    assert_holds(open_float32(TINY, cache=cache), tiny_tensors())
    assert path.read_bytes() == content


def test_the_image_of_another_model_in_its_place_is_rebuilt(cache: ModelCacheConfig) -> None:
    mine = open_float32(TINY, cache=cache).image_path or Path()
    other = open_float32(TINY.replace("seed=1", "seed=2"), cache=cache).image_path or Path()
    mine.write_bytes(other.read_bytes())
    assert_holds(open_float32(TINY, cache=cache), tiny_tensors())


def test_what_a_dead_builder_left_is_written_over(cache: ModelCacheConfig) -> None:
    path = open_float32(TINY, cache=cache).image_path or Path()
    content = path.read_bytes()
    path.unlink()
    path.with_suffix(".partial").write_bytes(b"x" * 2 * len(content))
    open_float32(TINY, cache=cache)
    assert path.read_bytes() == content
    assert not path.with_suffix(".partial").exists()


def test_weights_stay_valid_when_the_image_is_removed(cache: ModelCacheConfig) -> None:
    model = open_float32(TINY, cache=cache)
    (model.image_path or Path()).unlink()
    weights = float32_weights(model)
    name = next(iter(model.program.weights))
    expected = evaluate(model.program.weights[name], tiny_tensors().__getitem__)
    np.testing.assert_array_equal(weights[name], expected)


def test_a_changed_checkpoint_gets_another_image(cache: ModelCacheConfig, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hf")
    before = open_float32(str(folder), cache=cache)
    tensors = tiny_tensors()
    tensors[GATE] = tensors[GATE] * 2
    write_folder(folder, tensors=tensors)
    after = open_float32(str(folder), cache=cache)
    assert after.fingerprint != before.fingerprint
    assert_holds(after, tensors)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", ["folder", "gguf"])
def test_a_non_finite_value_is_named(
    cache: ModelCacheConfig, tmp_path: Path, layout: str, value: float
) -> None:
    def spoil(name: str, array: F32) -> F32:
        if name == GATE:
            array[3, 5] = value
        return array

    if layout == "gguf":
        source = write_gguf(tmp_path / "a.gguf", change=spoil)
    else:
        tensors = {name: spoil(name, array) for name, array in tiny_tensors().items()}
        source = write_folder(tmp_path / "hf", tensors=tensors)
    with pytest.raises(Invalid, match=rf"{GATE}' with the value -?(nan|inf) at \[3, 5\]") as caught:
        open_float32(str(source), cache=cache)
    assert "model.safetensors" in caught.value.sentence or "a.gguf" in caught.value.sentence
    assert not list(cache.images.iterdir()), "neither an image nor a half one"


def test_wrong_missing_and_unexpected_tensors_are_named(
    cache: ModelCacheConfig, tmp_path: Path
) -> None:
    """A tensor that the model would have to read and doesn't is as wrong as one that is missing."""
    tensors = tiny_tensors()
    transposed = tensors | {GATE: np.ascontiguousarray(tensors[GATE].T)}
    missing = {name: array for name, array in tensors.items() if name != GATE}
    bias = tensors | {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    for number, (wrong, said) in enumerate(
        [
            (transposed, rf"{GATE}' with shape \[64, 96\], the model needs \[96, 64\]"),
            (missing, rf"holds no tensor '{GATE}', which the model needs"),
            (bias, r"holds tensor 'model.layers.0.self_attn.q_proj.bias', which no model of fam"),
        ]
    ):
        folder = write_folder(tmp_path / str(number), tensors=wrong)
        with pytest.raises(Invalid, match=said):
            open_float32(str(folder), cache=cache)


def test_tensors_that_say_nothing_new_are_let_be(cache: ModelCacheConfig, tmp_path: Path) -> None:
    source = TINY + "&tied=1"
    more = {
        "lm_head.weight": np.ones((260, 64), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),
    }
    folder = write_folder(tmp_path / "m", source, tensors=tiny_tensors(source) | more)
    assert_holds(open_float32(str(folder), cache=cache), tiny_tensors(source))


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(Invalid, match=r"model image of \d+ MiB cannot be written to .*images"):
        open_float32(TINY, cache=ModelCacheConfig(folder=tmp_path / "cache"))


def test_who_waits_for_a_builder_goes_on_though_the_image_stays_in_use(tmp_path: Path) -> None:
    """The builder keeps a shared lock on what it made, for as long as it maps it."""
    path, other = tmp_path / "x.partial", tmp_path / "x.image"
    waiting, entered = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        with locked_file(path):
            entered.set()

    with path.open("w+b") as builder:
        fcntl.flock(builder, fcntl.LOCK_EX)
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        waiting.wait()
        path.rename(other)
        fcntl.flock(builder, fcntl.LOCK_SH)
        assert entered.wait(20)
        waiter.join()
