"""One host's pool behind real executors: prompts that were driven out come back from DRAM or SSD,
bit for bit, also after a restart of the agent, from a corrupt disk, and with roles apart.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handed_over import quiet, serves, status, transfers
from house import House, tree_config, until

from tercet.base.errors import Invalid
from tercet.pool.config import PoolConfig
from tercet.runtime.config import TreeConfig
from tercet.runtime.tree import start_tree
from tercet.transfer.config import TransferConfig

Build = Callable[[TreeConfig], House]
TOKENS = 500
PROMPTS = [
    [(number * 71 + place * 13 + place * place) % 250 + 1 for place in range(TOKENS)]
    for number in range(12)
]
ONE_CONTEXT = 45 * 4096
"""Bytes of an arena in which the next prompt drives out the one before it."""
CACHED = TOKENS // 32 * 32


def config(cache: Path, pool: PoolConfig, **runtime: object) -> TreeConfig:
    tree = tree_config(cache, kv_cache_memory_bytes=ONE_CONTEXT, **runtime)
    always = TransferConfig(populate="always")  # so small a model would rather compute
    return dataclasses.replace(tree, context_max=600, pool=pool, transfer=always)


def ask(house: House, prompt: list[int]) -> tuple[Any, int]:
    """What a client sees, and how many tokens it is told were cached."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 2,
        "return_token_ids": True,
    }
    answer = house.client.post("/v1/completions", json=body).json()
    choice = answer["choices"][0]
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return (choice["token_ids"], choice["logprobs"]), cached


def ask_all(house: House) -> tuple[list[Any], list[int]]:
    pairs = [ask(house, prompt) for prompt in PROMPTS]
    return [seen for seen, _ in pairs], [cached for _, cached in pairs]


def stored(house: House) -> None:
    """Wait until no prompt is on its way into the pool."""
    quiet(house)
    until(lambda: all(not one["cache"]["stores"] for one in status(house)["executors"]), "stored")


@pytest.fixture(scope="module")
def undisturbed(cache: Path) -> list[Any]:
    house = House(tree_config(cache))
    seen, _ = ask_all(house)
    house.close()
    return seen


def test_what_was_driven_out_comes_back_from_memory(
    cache: Path, build: Build, undisturbed: list[Any]
) -> None:
    house = build(config(cache, PoolConfig(dram_bytes=64 << 20, value_tokens=32)))

    def is_there() -> bool:
        """What the next prompt took the place of before it was stored, the next asking stores."""
        seen, cached = ask_all(house)
        assert seen == undisturbed
        stored(house)
        return cached == [CACHED] * len(PROMPTS)

    until(is_there, "all is found again")
    until(lambda: transfers(house).get("pool_hits", {}).get("dram", 0) > 0, "hits are counted")
    quiet(house)


def on_disk(path: Path) -> PoolConfig:
    """Memory for few values: the others are on disk alone."""
    return PoolConfig(dram_bytes=300_000, disk_path=str(path), disk_bytes=64 << 20, value_tokens=32)


def test_it_comes_back_from_disk_and_after_a_restart(
    cache: Path, build: Build, undisturbed: list[Any], tmp_path: Path
) -> None:
    """kvcache-ai/Mooncake#1871: a change of leader loses all metadata; a slab knows its own."""
    house = build(config(cache, on_disk(tmp_path / "slab")))

    def is_there() -> bool:
        """What memory had no room for before the disk took it, the next asking stores again."""
        seen, cached = ask_all(house)
        assert seen == undisturbed
        stored(house)
        return min(cached) > 0 and sum(cached) >= CACHED * len(PROMPTS) * 3 // 4

    until(is_there, "most is found again")
    house.close()
    again = build(config(cache, on_disk(tmp_path / "slab")))
    seen, cached = ask_all(again)
    assert seen == undisturbed
    assert sum(cached) >= CACHED * len(PROMPTS) // 2, "what lay on disk is found again"


def test_a_corrupt_disk_makes_answers_late_and_never_wrong(
    cache: Path, build: Build, undisturbed: list[Any], tmp_path: Path
) -> None:
    """LMCache#4385: the disk tier gave one session's KV to another, silently; sglang#27504: garbled
    after a restore from disk.
    """
    slab = tmp_path / "slab"
    house = build(config(cache, on_disk(slab)))
    assert ask_all(house)[0] == undisturbed
    stored(house)
    house.close()
    data = bytearray(slab.read_bytes())
    half = len(data) // 64  # values lie at the begin of the slab
    for at in range(half // 2, half * 8, 4096 * 3):
        data[at] ^= 0xFF
    slab.write_bytes(bytes(data))
    again = build(config(cache, on_disk(slab)))
    for _ in range(2):
        assert ask_all(again)[0] == undisturbed
    quiet(again)


def test_prefill_and_decode_apart_share_the_pool(
    cache: Path, build: Build, undisturbed: list[Any]
) -> None:
    pool = PoolConfig(dram_bytes=64 << 20, value_tokens=32)
    house = build(config(cache, pool, prefill=1, decode=1))
    until(lambda: serves(house, 2), "both serve")
    for _ in range(2):
        assert ask_all(house)[0] == undisturbed
        stored(house)
    until(lambda: transfers(house).get("pool_hits", {}).get("dram", 0) > 0, "hits are counted")
    assert ask_all(house)[0] == undisturbed


def test_the_agent_dies_and_the_pool_begins_anew(
    cache: Path, build: Build, undisturbed: list[Any]
) -> None:
    """LMCache#651: a restart of the cache server hangs prefill."""
    house = build(config(cache, PoolConfig(dram_bytes=64 << 20, value_tokens=32)))
    assert ask_all(house)[0] == undisturbed
    stored(house)
    house.kill(house.pid("tercet: node agent"))

    def is_back() -> bool:
        seen, cached = ask_all(house)
        assert seen == undisturbed
        return cached == [CACHED] * len(PROMPTS)

    until(is_back, "prompts are stored and found again")


def test_an_agent_whose_disk_is_lost_goes_on_in_memory(
    cache: Path, build: Build, undisturbed: list[Any], tmp_path: Path
) -> None:
    """A disk that cannot be opened any more once ended the tree with the fifth try of its agent."""
    slab = tmp_path / "slab"
    pool = dataclasses.replace(on_disk(slab), dram_bytes=64 << 20)
    house = build(config(cache, pool))
    assert ask_all(house)[0] == undisturbed
    slab.unlink()
    slab.mkdir()
    house.kill(house.pid("tercet: node agent"))

    def is_back() -> bool:
        seen, cached = ask_all(house)
        assert seen == undisturbed
        return cached == [CACHED] * len(PROMPTS)

    until(is_back, "prompts are stored and found again")
    quiet(house)


def test_a_disk_that_cannot_be_had_is_told_in_a_sentence(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"The pool's disk .* cannot be had: Is a directory"):
        start_tree(config(cache, on_disk(tmp_path)))
