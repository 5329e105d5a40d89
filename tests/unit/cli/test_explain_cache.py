"""`tercet explain cache`: what fetching takes, and from how many tokens on it pays."""

import pytest

from tercet.cli.break_even import Computing, Way, break_even
from tercet.cli.explain_cache import learned, shown
from tercet.messages.plan import StepCost

COST = StepCost(base_ns=1e6, per_row_ns=1e6, per_logit_ns=0.0, per_pair_ns=100.0)
COMPUTING = Computing(cost=COST, step_ns_max=250_000_000, bytes_per_token=1000.0, context_max=4096)


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "expected"),
    [
        (0.0, 1e9, 16),
        (0.1, 1e9, 112),
        (0.0, 0.9e6, 2144),  # what is fetched as slowly as computed, but for attention
        (0.0, 1e5, None),
        (10.0, 1e9, None),
    ],
)
def test_fetching_pays_from_some_tokens_on(latency_s, bytes_per_s, expected):
    way = Way(source="ssd", latency_s=latency_s, bytes_per_s=bytes_per_s)
    tokens = break_even(way, COMPUTING)
    assert tokens == expected
    if tokens and tokens > 16:
        less, size = tokens - 16, COMPUTING.bytes_per_token
        assert way.fetch_ns(less * size) >= COMPUTING.saved_ns(less)


def test_what_a_server_learned_is_shown_by_executor():
    said = {"latency_s": 0.1, "bytes_per_s": 1e9, "fetches": 3.0, "bytes": 5e6}
    costs = {
        "base_ns": 1e6,
        "per_row_ns": 1e6,
        "per_pair_ns": 100.0,
        "step_ns_max": 25e7,
        "bytes_per_token": 1000.0,
        "context_max": 4096.0,
    }
    status = {
        "executors": [
            {"executor": 0, "sources": {"dram": said, "peer:x": said}, "costs": costs},
            {"executor": 1, "sources": {}, "costs": {}},
        ]
    }
    rows = learned(status)
    assert [(row.executor, row.way.source, row.pays_from) for row in rows] == [
        ("0", "dram", 112),
        ("0", "peer:x", 112),
    ]
    lines = shown(rows)
    assert "this host's memory" in lines[1]
    assert lines[2].split() == [
        "0", "peer:x", "100.000", "ms", "1.00", "GB/s", "3", "5.0", "MB", "112", "tokens"
    ]  # fmt: skip
    assert learned({"executors": []}) == []
    assert shown([]) == []
