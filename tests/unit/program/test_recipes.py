import numpy as np
import pytest

from tercet.base.errors import InvariantBroken
from tercet.program.recipes import Ckpt, Concat, Reshape, Slice, evaluate, sources

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(100, 109, dtype=np.float32).reshape(3, 3),
}
A, B = Ckpt("a", (2, 3)), Ckpt("b", (3, 3))


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (A, TENSORS["a"]),
        (Concat((A, B)), np.concatenate([TENSORS["a"], TENSORS["b"]])),
        (Reshape(A, (3, 1, 2)), TENSORS["a"].reshape(3, 1, 2)),
        (Slice(B, 1, 3), TENSORS["b"][1:3]),
        (Slice(Concat((A, B)), 1, 4), np.concatenate([TENSORS["a"], TENSORS["b"]])[1:4]),
    ],
)
def test_a_recipe_knows_its_shape_and_gives_its_contents(recipe, expected) -> None:
    assert recipe.shape == expected.shape
    result = evaluate(recipe, TENSORS.__getitem__)
    np.testing.assert_array_equal(result, expected)
    assert result.flags.c_contiguous


def test_equal_recipes_are_equal_values() -> None:
    assert Concat((A, Ckpt("b", (3, 3)))) == Concat((Ckpt("a", (2, 3)), B))
    assert len({Ckpt("a", (2, 3)), A, B}) == 2


def test_sources_name_what_is_read_in_order() -> None:
    assert list(sources(Reshape(Concat((B, Slice(A, 0, 1))), (12,)))) == [B, A]


def test_a_strided_checkpoint_tensor_comes_out_contiguous() -> None:
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = evaluate(Ckpt("t", (4, 3)), lambda _: wide.T)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, wide.T)


@pytest.mark.parametrize(
    "recipe", [Ckpt("a", (3, 2)), Reshape(A, (5,)), Concat((A, Reshape(B, (9,)))), Slice(A, 1, 3)]
)
def test_a_contradiction_stops_the_process(recipe) -> None:
    with pytest.raises(InvariantBroken):
        assert evaluate(recipe, TENSORS.__getitem__).shape == recipe.shape
