"""Executors that cannot start tell why, and whoever asks the tree is told it."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from house import House, tree_config, until

from tercet.base.errors import Invalid
from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.runtime.config import TreeConfig
from tercet.runtime.tree import start_tree

WHY = "The model image of 0 MiB cannot be written"
Build = Callable[[TreeConfig], House]


def test_why_no_executor_starts_any_more_is_told(
    build: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The executor's own sentence, not that its process ended with some code; and the log says
    each failed start, not each look at it.
    """
    cache = tmp_path / "models"
    config = dataclasses.replace(
        tree_config(cache),
        cluster_manager=ClusterManagerConfig(failures_max=2, backoff_s_max=0.5),
    )
    house = build(config)
    shutil.rmtree(cache)
    cache.write_text("not a folder")
    house.kill(house.executors()[0])
    until(lambda: house.client.get("/live").status_code == 503, "a failure that lasts")
    said = house.client.get("/live").text
    assert "2 times in a row a colocated executor of tiny ended before it was ready" in said
    assert WHY in said
    log: list[str] = []

    def told() -> int:
        log.extend(capfd.readouterr().err.splitlines())
        return sum(" tree.failed told_by=front " in line for line in log)

    until(lambda: told() > 0, "a line of the log")
    house.close()
    assert 1 <= told() < 20
    assert 2 <= sum(" executor.gone " in line and WHY in line for line in log) < 20


def test_a_device_that_is_not_known_is_told_in_a_sentence(cache: Path) -> None:
    with pytest.raises(Invalid, match="abacus"):
        start_tree(tree_config(cache, device="abacus"))
