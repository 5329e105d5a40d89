"""Tens of thousands of requests, many of them left at some moment: nothing may be left of them."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psutil
import pytest
from crowd import Crowd
from house import House, tree_config, until

from tercet.api.config import ApiConfig
from tercet.devices.cost.device import COST_BLOCK_SHAPE
from tercet.engine.memory import block_bytes
from tercet.observe.config import ObserveConfig

MIB = 1 << 20
AT_ONCE = 48
KV_BYTES = {"cost": 1024 * block_bytes(COST_BLOCK_SHAPE), "cpu": 16 * MIB}
"""Little enough for blocks to be evicted and tasks to be preempted."""
POOL_THREADS = ApiConfig.tokenizer_threads
"""A pool may make its last threads late."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., House]]:
    made: list[House] = []

    def make(**runtime: object) -> House:
        config = tree_config(tmp_path, **runtime)
        quiet = ObserveConfig(log_level="error")
        made.append(House(dataclasses.replace(config, observe=quiet)))
        return made[-1]

    yield make
    for house in made:
        house.close()
        assert house.gone()


def idle(house: House) -> bool:
    """Whether nothing runs, waits or holds blocks, as front and executors see it."""
    about = house.client.get("/health").json()
    if (about["jobs_running"], about["jobs_queued"]) != ("0", "0"):
        return False
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    lines = house.client.get("/metrics").text.splitlines()
    return all(line.endswith(" 0.0") for line in lines if line.startswith(names))


def holdings(house: House) -> dict[str, tuple[int, int, int]]:
    """By process: bytes of its own memory, descriptors, threads."""
    found = {}
    for title, (pid,) in house.processes().items():
        process = psutil.Process(pid)
        own = process.memory_full_info().uss
        found[title] = (own, process.num_fds(), process.num_threads())
    return found


def soak(house: House, *, warm: int, count: int, growth_bytes: int) -> None:
    """Let the crowd come twice; the second time may leave no trace."""
    seed = int(os.environ.get("TERCET_SOAK_SEED") or Random().randrange(1 << 32))
    print(f"\nTERCET_SOAK_SEED={seed}")
    crowd = Crowd(house.tree.url, Random(seed))
    crowd.come(warm, at_once=AT_ONCE)
    until(lambda: idle(house), "nothing runs, waits or holds a block")
    before = holdings(house)
    crowd.come(count, at_once=AT_ONCE)
    until(lambda: idle(house), "nothing runs, waits or holds a block")
    after = holdings(house)
    print(dict(crowd.outcomes))
    for title, what in after.items():
        print(f"{title:40} {before[title]} -> {what}")
    assert set(crowd.outcomes) <= {"200", "400", "left"}
    assert sum(crowd.outcomes.values()) == warm + count
    assert crowd.outcomes["200"] > (warm + count) // 3
    assert set(after) == set(before), "a process was replaced"
    for title, (own, num_descriptors, num_threads) in after.items():
        own_before, num_descriptors_before, num_threads_before = before[title]
        assert own - own_before < growth_bytes, f"{title} grew"
        assert num_descriptors == num_descriptors_before, title
        assert num_threads - num_threads_before <= POOL_THREADS, title


@pytest.mark.parametrize("device", ["cost", "cpu"])
def test_requests_leave_nothing_behind(make: Callable[..., House], device: str) -> None:
    """vllm#50150, llama.cpp#16448: memory grows by the request; no answers after fifty.

    The number of requests is small here; `make soak` has the rest.
    """
    house = make(device=device, kv_cache_memory_bytes=KV_BYTES[device])
    soak(house, warm=500, count=700, growth_bytes=12 * MIB)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replicas", [1, 2])
def test_twenty_thousand_requests_leave_nothing_behind(
    make: Callable[..., House], replicas: int
) -> None:
    """vllm PR#44490: a list that nobody drained, seen after four million requests."""
    house = make(device="cost", replicas=replicas, kv_cache_memory_bytes=KV_BYTES["cost"])
    soak(house, warm=4_000, count=16_000, growth_bytes=8 * MIB)
