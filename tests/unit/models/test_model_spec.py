"""Models that are spelled as a line."""

import numpy as np
import pytest
from small_models import TINY, tensors_of

from tercet.base.errors import Invalid
from tercet.base.tokenizer import BYTES_END_IDS, BYTES_VOCAB
from tercet.models.sources import open_checkpoint
from tercet.models.spec import SIZES, parse_cost, parse_random


def test_numbers_of_a_line_become_the_shape() -> None:
    shape, seed = parse_random("random:qwen2?layers=3&hidden=32&heads=2&kv_heads=1&seed=7&tied=1")
    assert (shape.family, shape.num_layers, shape.hidden, seed) == ("qwen2", 3, 32, 7)
    assert shape.attention_bias
    assert shape.tied_embeddings
    assert shape.vocab == BYTES_VOCAB
    assert shape.end_ids == BYTES_END_IDS


@pytest.mark.parametrize("size", list(SIZES))
def test_cost_models_have_named_sizes(size: str) -> None:
    assert parse_cost(f"cost:{size}?context=512").context_max == 512
    assert parse_cost(f"cost:{size}").num_layers == SIZES[size]["layers"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("random:lama", r"unknown family 'lama' \(nearest: llama\); known are llama, qwen2, qwen3"),
        ("random:llama?layer=3", r"unknown setting 'layer' \(nearest: layers\)"),
        ("random:llama?layers=three", "layers is 'three', expected an integer"),
        ("random:llama?layers=-1", "layers is '-1', expected an integer"),
        ("random:llama?layers=1025", "layers is 1025, expected at most 1024"),
        ("random:llama?layers=0", "layers is 0, expected at least 1"),
        ("random:llama?layers=" + "9" * 5000, "expected an integer from 0 to"),
        ("random:llama?vocab=10", "vocab is 10, expected at least 260"),
        ("random:llama?heads=3&kv_heads=2", r"heads \(3\) must be a multiple of kv_heads \(2\)"),
        ("random:llama?head_dim=3", r"head_dim \(3\) even"),
        ("random:llama?", ""),
    ],
)
def test_a_wrong_line_is_refused(source: str, said: str) -> None:
    if not said:
        assert parse_random(source)[0].num_layers == 2
        return
    with pytest.raises(Invalid, match=said):
        parse_random(source)


def test_a_wrong_cost_line_is_refused() -> None:
    with pytest.raises(Invalid, match=r"unknown size 'tinny' \(nearest: tiny\)"):
        parse_cost("cost:tinny")
    with pytest.raises(Invalid, match="unknown setting 'seed'"):
        parse_cost("cost:tiny?seed=1")


def test_random_tensors_are_a_function_of_the_line() -> None:
    """The first numbers are written down: they must not change with a version of NumPy."""
    once, twice = (tensors_of(open_checkpoint(TINY)) for _ in range(2))
    other = tensors_of(open_checkpoint(TINY.replace("seed=1", "seed=2")))
    for name, array in once.items():
        np.testing.assert_array_equal(array, twice[name])
        assert not np.array_equal(array, other[name])
        assert np.isfinite(array).all()
    first = once["model.embed_tokens.weight"][0, :3]
    assert first.tolist() == [-1.0376943349838257, 1.333138108253479, 0.3342372179031372]
