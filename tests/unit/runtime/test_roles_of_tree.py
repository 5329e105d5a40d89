"""How many executors of which role a configuration means."""

import pytest

from tercet.base.errors import Invalid
from tercet.messages.wire import Role
from tercet.runtime.config import RuntimeConfig


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({}, (0, 0, 1)),
        ({"replicas": 3}, (0, 0, 3)),
        ({"prefill": 1, "decode": 2}, (1, 2, 0)),
        ({"prefill": 1}, (1, 0, 0)),
        ({"prefill": 1, "decode": 1, "replicas": 1}, (1, 1, 1)),
    ],
)
def test_colocated_is_what_is_left(given: dict[str, int], counts: tuple[int, int, int]) -> None:
    config = RuntimeConfig(**given)  # type: ignore[arg-type]
    assert tuple(config.counts[role] for role in Role) == counts
    assert config.num_executors == sum(counts)


@pytest.mark.parametrize(
    "given",
    [{"replicas": 0}, {"prefill": -1}, {"decode": 65}, {"prefill": 40, "decode": 40}],
)
def test_too_few_and_too_many_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(Invalid, match="64"):
        RuntimeConfig(**given)  # type: ignore[arg-type]
