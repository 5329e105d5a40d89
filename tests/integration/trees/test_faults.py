"""Executors that misbehave below the device seam, as configured."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from house import POISON, House, tree_config, until

from tercet.base.errors import Invalid
from tercet.devices.cost.config import CostConfig
from tercet.job_executor.config import JobExecutorConfig
from tercet.runtime.config import Fault, TreeConfig
from tercet.runtime.tree import start_tree

Build = Callable[[TreeConfig], House]


def test_every_kind_of_fault_is_survived_by_a_stream(cache: Path, build: Build) -> None:
    """Executors 0 to 4 each break down in another way in the midst of one stream."""
    healthy = build(tree_config(cache))
    undisturbed = healthy.complete(max_tokens=200)
    healthy.close()
    kinds = ("raise", "hold_gil", "spin", "sleep", "exit")
    faults = tuple(Fault(kind=kind, step=12, executor=i) for i, kind in enumerate(kinds))
    house = build(tree_config(cache, faults=faults))
    assert house.complete(max_tokens=200) == undisturbed
    assert "executor 5 " in next(name for name in house.processes() if "executor" in name)


def test_a_job_that_kills_every_executor_ends_and_hurts_nobody(cache: Path, build: Build) -> None:
    """I7, and vllm#9634: one request that takes the server down."""
    config = tree_config(cache, faults=(Fault(kind="raise", token=POISON),), replicas=2)
    config = dataclasses.replace(config, job_executor=JobExecutorConfig(max_tries=2))
    house = build(config)
    innocent = [house.stream(max_tokens=300).after(2) for _ in range(3)]
    poisoned = house.stream(max_tokens=8, prompt=[40, POISON, 41])
    poisoned.wait()
    assert "executor" in poisoned.error.lower(), (poisoned.error, poisoned.broken)
    assert len({stream.finish() for stream in innocent}) == 1
    house.complete()


def test_too_little_memory_is_told_in_a_sentence(cache: Path) -> None:
    with pytest.raises(Invalid, match="One context of"):
        start_tree(tree_config(cache, kv_cache_memory_bytes=1 << 10))


def test_a_full_queue_is_answered_at_once(cache: Path, build: Build) -> None:
    """I6: 503 with Retry-After, while what was accepted goes on."""
    limits = JobExecutorConfig(max_queued_jobs=2, max_tasks_per_executor=1)
    config = dataclasses.replace(
        tree_config(cache, device="cost"), cost=CostConfig(step_ns=2e7), job_executor=limits
    )
    house = build(config)
    accepted = [house.stream(max_tokens=40).after(1)]
    accepted += [house.stream(max_tokens=4) for _ in range(2)]
    until(lambda: '"jobs_queued":"2"' in house.client.get("/health").text, "two wait")
    body = {"model": "tiny", "prompt": [1, 2], "max_tokens": 1}
    refused = house.client.post("/v1/completions", json=body)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    for stream in accepted:
        stream.finish()
