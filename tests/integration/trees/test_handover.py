"""Prefill and decode in different processes: the same tokens and logprobs, bit for bit, however the
blocks come, whoever dies, and nothing is left held."""

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handed_over import Answering, answers, executors_of, quiet, requests, serves, transfers
from house import House, tree_config, until

from tercet.runtime.config import TreeConfig
from tercet.transfer.config import TransferConfig, WayChoice

Build = Callable[[TreeConfig], House]
KV_TYPES = ("bf16", "int8")
WAYS: tuple[WayChoice, ...] = ("reference", "layer", "request")
BODIES = requests(120, seed=4)


def config(cache: Path, way: WayChoice, **runtime: object) -> TreeConfig:
    """A tree whose leases end soon, so that quiet comes soon."""
    patience = TransferConfig(way=way, lease_s=2.0, renew_s=0.5, silence_s=2.0)
    return dataclasses.replace(tree_config(cache, **runtime), transfer=patience)


@pytest.fixture(scope="module")
def undisturbed(cache: Path) -> dict[str, list[Any]]:
    """What one colocated executor answers, by the type of keys and values."""
    found = {}
    for kv_dtype in KV_TYPES:
        house = House(tree_config(cache, kv_dtype=kv_dtype))
        found[kv_dtype] = answers(house, BODIES)
        house.close()
    return found


@pytest.mark.parametrize("kv_dtype", KV_TYPES)
@pytest.mark.parametrize("way", WAYS)
def test_tokens_and_logprobs_are_those_of_one_colocated_executor(
    cache: Path, build: Build, undisturbed: dict[str, list[Any]], way: WayChoice, kv_dtype: str
) -> None:
    """aws-samples/aws-do-eks#84: decode read other blocks, and every answer was 200 OK."""
    house = build(config(cache, way, prefill=1, decode=1, kv_dtype=kv_dtype))
    until(lambda: serves(house, 2), "both serve")
    assert answers(house, BODIES) == undisturbed[kv_dtype]
    quiet(house)
    until(lambda: transfers(house).get("kv_handovers", {}).get(way, 0) > 60, "hand-overs counted")
    moved = sum(transfers(house).get("kv_moved_bytes", {}).values())
    assert (moved == 0) == (way == "reference"), f"{moved} bytes were moved by {way}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_executor_that_dies_or_freezes_changes_no_token(
    cache: Path,
    build: Build,
    undisturbed: dict[str, list[Any]],
    way: WayChoice,
    role: str,
    number: int,
) -> None:
    """vllm#58063, vllm#49238: a decode segfaults or serves nonsense after its prefill restarts;
    vllm#50719: requests wait for ever for remote blocks.
    """
    house = build(config(cache, way, prefill=2, decode=2))
    until(lambda: serves(house, 4), "all serve")
    answering = Answering(house, BODIES)
    for _ in range(3):
        until(lambda: serves(house, 4) or answering.over, "all serve again")
        if pids := executors_of(house, role):
            house.kill(pids[0], number)
        until(lambda: not serves(house, 4) or answering.over, "a death is noticed")
    assert answering.finish() == undisturbed["bf16"]
    until(lambda: serves(house, 4), "all serve again")
    quiet(house)


@pytest.mark.parametrize("way", WAYS)
def test_clients_that_leave_at_any_moment_leave_nothing_held(
    cache: Path, build: Build, way: WayChoice
) -> None:
    """ai-dynamo/dynamo PR#7489: a client gone during the transfer leaks blocks until prefill hangs;
    dynamo#13691: prefill goes on after a client left before its first token.
    """
    house = build(config(cache, way, prefill=1, decode=1))
    until(lambda: serves(house, 2), "both serve")
    streams = []
    for number in range(60):
        prompt = [(number * 7 + place * 13) % 250 + 1 for place in range(300 + 10 * number)]
        streams.append(house.stream(prompt=prompt, max_tokens=200))
        if number % 2:
            streams[number // 2].leave()
    for stream in streams:
        stream.leave()
    quiet(house)
