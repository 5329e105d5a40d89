"""Three hosts that share nothing but TCP: what one computed the others have, bit for bit, and a
host that dies takes only its share.
"""

from collections.abc import Callable, Iterator

import pytest
from local_cluster import Hosts, until


@pytest.fixture
def start() -> Iterator[Callable[..., Hosts]]:
    started: list[Hosts] = []

    def start(*arguments: str) -> Hosts:
        started.append(Hosts(*arguments))
        until(lambda: started[-1].serves(3), "three executors on three hosts")
        return started[-1]

    yield start
    for hosts in started:
        hosts.close()


def test_what_one_host_stored_the_others_find_and_a_dead_host_loses_only_its_share(
    start: Callable[..., Hosts],
) -> None:
    hosts = start("--colocated", "3")
    places = {one["host"] for one in hosts.status()["executors"]}
    assert places == {"local", "h1", "h2"}
    undisturbed = hosts.ask_all()
    until(
        lambda: (
            hosts.ask_all() == undisturbed
            and hosts.status()["transfers"].get("kv_moved_bytes", {}).get("tcp/scale_out", 0) > 0
        ),
        "values come from other hosts",
    )
    hosts.kill_host()
    for _ in range(3):
        assert hosts.ask_all() == undisturbed
    until(lambda: hosts.serves(3), "the lost executor runs on another host")
    assert hosts.ask_all() == undisturbed


def test_prefill_and_decode_on_different_hosts(start: Callable[..., Hosts]) -> None:
    """vllm-project/router#113: prefill and decode apart, found without being configured."""
    hosts = start("--prefill", "1", "--decode", "2")
    until(lambda: hosts.status()["transfers"].get("kv_handovers") or bool(hosts.ask_all()), "warm")
    undisturbed = hosts.ask_all()
    until(
        lambda: (
            hosts.ask_all() == undisturbed
            and hosts.status()["transfers"].get("kv_handovers", {}).get("layer", 0) > 10
        ),
        "hand-overs between hosts",
    )
