"""One thread for products: tests share their cores, and waiting threads spin (decision 12)."""

from collections.abc import Iterator

import pytest
import threadpoolctl


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(limits=1):
        yield
