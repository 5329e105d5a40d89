"""What is asked of `ip` and `tc` for a network of hosts on one machine."""

import json
from ipaddress import IPv4Network

from tercet.runtime.host_network import (
    LinkLimits,
    bandwidth_command,
    free_network,
    host_commands,
    latency_command,
    switch_commands,
    taken_networks,
    user_commands,
)

ROUTES = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
    {"dst": "0.0.0.0/1", "dev": "tun0"},
    {"dst": "128.0.0.0/1", "dev": "tun0"},
    {"dst": "10.8.0.0/16", "dev": "tun0"},
    {"type": "local", "dst": "127.0.0.1", "dev": "lo", "table": "local"},
]


def test_ranges_that_routes_lead_to_are_taken_and_default_routes_take_none() -> None:
    networks = [str(one) for one in taken_networks(json.dumps(ROUTES))]
    assert networks == ["10.8.0.0/16", "127.0.0.1/32"]
    assert taken_networks("") == []


def test_a_free_range_overlaps_nothing_that_is_taken() -> None:
    assert str(free_network([], first=7)) == "10.203.7.0/24"
    assert str(free_network([IPv4Network("10.203.7.128/30")], first=7)) == "10.203.8.0/24"
    assert str(free_network([IPv4Network("10.203.255.9/32")], first=255)) == "10.203.0.0/24"
    everything = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12")]
    assert str(free_network(everything, first=1)) == "192.168.1.0/24"
    assert free_network([*everything, IPv4Network("192.168.0.0/16")]) is None


def test_two_who_begin_at_the_same_moment_look_at_different_ranges_first() -> None:
    assert free_network([], first=4000) != free_network([], first=4001)


def test_every_namespace_gets_its_end_of_a_link_and_an_address() -> None:
    assert user_commands("tercet9", 70, "10.203.0.1").splitlines() == [
        "link add tercet9 type veth peer name port0 netns 70",
        "addr add 10.203.0.1/24 dev tercet9",
        "link set tercet9 up",
    ]
    assert switch_commands({1: 71, 2: 72}).splitlines() == [
        "link add bridge type bridge",
        "link set bridge up",
        "link add port1 type veth peer name lan netns 71",
        "link add port2 type veth peer name lan netns 72",
        "link set port0 master bridge",
        "link set port0 up",
        "link set port1 master bridge",
        "link set port1 up",
        "link set port2 master bridge",
        "link set port2 up",
    ]
    assert "addr add 10.203.0.3/24 dev lan" in host_commands("10.203.0.3")


def test_half_of_the_latency_is_added_on_each_way_out() -> None:
    command = latency_command("lan", LinkLimits(latency_s=0.02))
    assert command == "qdisc add dev lan root handle 1: netem delay 10000us limit 100000\n"


def test_bandwidth_is_given_in_bits_and_stands_behind_latency_where_both_are() -> None:
    limits = LinkLimits(bytes_per_s=100e6)
    alone = bandwidth_command("lan", limits, behind_latency=False).split()
    assert " ".join(alone[:9]) == "qdisc add dev lan root tbf rate 800000000bit burst"
    assert int(alone[9]) == 1_000_000, "ten milliseconds' worth"
    assert int(alone[11]) == 6_000_000, "and what fifty more bring waits, at most"
    both = bandwidth_command("lan", limits, behind_latency=True)
    assert "dev lan parent 1:1 handle 10: tbf" in both


def test_a_slow_link_still_takes_what_leaves_in_one_piece() -> None:
    words = bandwidth_command("lan", LinkLimits(bytes_per_s=1000), behind_latency=False).split()
    assert int(words[9]) > 65536
    assert int(words[11]) > 2 * 65536
