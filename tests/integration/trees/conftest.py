from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import House, tree_config

from tercet.runtime.config import TreeConfig


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def house(cache: Path) -> Iterator[House]:
    """Two executors; tests leave it serving."""
    house = House(tree_config(cache, replicas=2))
    yield house
    house.close()
    assert house.gone()


@pytest.fixture
def build() -> Iterator[Callable[[TreeConfig], House]]:
    """Builds houses, and takes them down after the test: nothing of any may be left."""
    built: list[House] = []

    def build(config: TreeConfig) -> House:
        built.append(House(config))
        return built[-1]

    yield build
    for house in built:
        house.close()
        assert house.gone()
