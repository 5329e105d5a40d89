import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from trial import Trial


@pytest.fixture(autouse=True)
def _no_broken_invariant(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever is done to processes, no machine of one that is left contradicts itself."""
    yield
    out, err = capfd.readouterr()
    print(out, end="")
    print(err, end="", file=sys.stderr)
    assert "InvariantBroken" not in err


@pytest.fixture
def rand() -> Random:
    seed = int(os.environ.get("TERCET_CHAOS_SEED") or Random().randrange(1 << 32))
    print(f"\nTERCET_CHAOS_SEED={seed}")
    return Random(seed)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def build() -> Iterator[Callable[..., Trial]]:
    """Builds trials, and ends them after the test: nothing of any may be left."""
    built: list[Trial] = []

    def build(*given, **named) -> Trial:
        built.append(Trial(*given, **named))
        return built[-1]

    yield build
    for trial in built:
        trial.close()
