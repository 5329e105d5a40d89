"""The bar of decisions: at most 10 % slower than the better of the two in 95 % of the grid."""

import pytest
from benchmarks.populate import MODELS, shares


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decisions_are_near_the_better_of_the_two(model, seed):
    found = shares(model, seed=seed, requests=200)
    assert found.ours >= 0.95
    assert found.ours > max(found.always, found.never)
