"""The replay of traces: the pool's tier objects against the plainest LRU, and the published traces.

Those are not in the project: TERCET_TRACES names a folder that holds them.
"""

import os
from collections import OrderedDict
from pathlib import Path
from random import Random

import pytest
from benchmarks.hit_rates import REFERENCE, TOLERANCE, best_possible, hit_rate, read_trace

FOLDER = os.environ.get("TERCET_TRACES", "")


def made_up() -> list[list[int]]:
    """Chains that begin alike and part."""
    rand = Random(5)
    trace = []
    for _ in range(400):
        tree, leaf = rand.randrange(12), rand.randrange(30)
        words = [tree * 1000 + depth for depth in range(rand.randrange(1, 9))]
        trace.append([word * 0x9E3779B97F4A7C15 % (1 << 64) for word in [*words, 50_000 + leaf]])
    return trace


def naive(trace: list[list[int]], blocks: int) -> float:
    there: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for keys in trace:
        for key in keys:
            if key not in there:
                break
            hits += 1
        for key in keys:
            there[key] = None
            there.move_to_end(key)
            while len(there) > blocks:
                there.popitem(last=False)
    return 100 * hits / sum(map(len, trace))


@pytest.mark.parametrize("blocks", [5, 30, 60, 1000])
def test_the_tier_is_an_lru(blocks: int) -> None:
    trace = made_up()
    assert hit_rate(trace, blocks, "lru", backwards=False) == naive(trace, blocks)


@pytest.mark.parametrize("blocks", [5, 30, 60, 1000])
def test_no_policy_is_better_than_the_best(blocks: int) -> None:
    trace = made_up()
    best = best_possible(trace, blocks)
    for policy in ("lru", "adaptive"):
        assert hit_rate(trace, blocks, policy, backwards=True) <= best + 1e-9


@pytest.mark.skipif(not FOLDER, reason="TERCET_TRACES names no folder with the traces")
@pytest.mark.parametrize("name", REFERENCE)
def test_the_published_traces_give_the_reference_values(name: str) -> None:
    trace = read_trace(Path(FOLDER) / f"mooncake_{name}.jsonl.gz")
    for blocks, reference in REFERENCE[name].items():
        found = round(hit_rate(trace, blocks, "lru", backwards=False), 1)
        assert abs(found - reference) <= TOLERANCE + 1e-6
