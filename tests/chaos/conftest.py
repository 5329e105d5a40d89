from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trial import Trial

from tercet.runtime.config import TreeConfig


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def build() -> Iterator[Callable[[TreeConfig], Trial]]:
    """Builds trials, and ends them after the test: nothing of any may be left."""
    built: list[Trial] = []

    def build(config: TreeConfig) -> Trial:
        built.append(Trial(config))
        return built[-1]

    yield build
    for trial in built:
        trial.close()
