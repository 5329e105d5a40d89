"""Hosts on one machine with networks of their own: apart, as slow as asked, gone at the end."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from local_cluster import Hosts, until

from tercet.runtime import host_network
from tercet.runtime.host_network import HostNetwork, LinkLimits, NetworkRefusedError, open_network

SIZE = 6_000_000
PULL = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listener:
    print(flush=True)
    listener.accept()[0].sendall(bytes(int(sys.argv[2])))
"""
READ = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5000)) as end:
    began, got = time.monotonic(), 0
    while part := end.recv(1 << 16):
        got += len(part)
print(got / (time.monotonic() - began))
"""
DIAL = """
import socket, sys, time
took = []
for _ in range(3):
    began = time.monotonic()
    socket.create_connection((sys.argv[1], int(sys.argv[2])))
    took.append(time.monotonic() - began)
print(min(took))
"""


def linked(pid: int) -> bool:
    """Whether the network of that process is connected with our own namespace."""
    return f"tercet{pid}" in [name for _, name in socket.if_nameindex()]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    try:
        open_network(2, LinkLimits()).close()
    except NetworkRefusedError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield
    assert not linked(os.getpid())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    started: list[Hosts] = []

    def start(*arguments: str, of: tuple[str, ...] = ()) -> Hosts:
        started.append(Hosts(*arguments, of=of, folder=tmp_path))
        until(lambda: started[-1].serves(3), "three executors on three hosts")
        return started[-1]

    yield start
    for hosts in started:
        hosts.close()


def namespaces(pid: int) -> tuple[str, str, str]:
    folder = Path(f"/proc/{pid}/ns")
    net, mount, ipc = (str((folder / kind).readlink()) for kind in ("net", "mnt", "ipc"))
    return net, mount, ipc


def test_three_hosts_are_apart_and_end_with_a_drain_after_ctrl_c(
    start: Callable[..., Hosts], tmp_path: Path
) -> None:
    """What they serve is compared in test_cluster_local.py, which runs so too where it can."""
    hosts = start("--colocated", "3", of=("--bandwidth", "50e6", "--latency", "0.002"))
    executors = {one["host"]: one["pid"] for one in hosts.status()["executors"]}
    assert set(executors) == {"local", "h1", "h2"}
    apart = {host: namespaces(pid) for host, pid in executors.items()}
    for kind in range(3):
        assert len({one[kind] for one in apart.values()}) == 3
    assert apart["local"][0] == namespaces(os.getpid())[0], "reached where it always is"
    addresses = [one["data"].rpartition(":")[0] for one in hosts.status()["hosts"]]
    assert len(set(addresses)) == 3
    assert not any(address.startswith("127.") for address in addresses)
    assert linked(hosts.process.pid)
    first = hosts.ask_all()
    until(
        lambda: (
            hosts.ask_all() == first
            and hosts.status()["transfers"].get("kv_moved_bytes", {}).get("tcp/scale_out", 0) > 0
        ),
        "values come from other hosts",
    )
    everything = psutil.Process(hosts.process.pid).children(recursive=True)
    said = hosts.close(signal.SIGINT)
    assert hosts.process.returncode == 0, "not an end at once"
    assert "namespaces of their own: network mount ipc" in said
    assert "Bandwidth is limited by the kernel" in said
    assert "Latency is limited by" in said
    assert not linked(hosts.process.pid)
    assert not [process for process in everything if process.is_running()]
    assert not list(tmp_path.iterdir())


def test_nothing_outlives_a_kill_but_a_folder_which_the_next_start_removes(
    start: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = start("--colocated", "3")
    everything = psutil.Process(hosts.process.pid).children(recursive=True)
    networks = {namespaces(one.pid)[0] for one in everything}
    assert len(networks) == 4, "three hosts and the switch between them"
    hosts.close(signal.SIGKILL)
    until(lambda: not linked(hosts.process.pid), "the kernel took the links back")
    (left,) = tmp_path.iterdir()
    start("--colocated", "3")
    assert not left.exists()


WITHOUT = {
    "not wanted": ((), ("--no-network-namespaces",)),
    "not permitted": (("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"), ()),
}


@pytest.mark.parametrize("why", WITHOUT)
def test_without_networks_hosts_have_loopback_addresses_and_limits_in_the_wire(
    why: str, tmp_path: Path
) -> None:
    before, of = WITHOUT[why]
    if before and shutil.which(before[0]) is None:
        pytest.skip("there is no setpriv to give up a capability with")
    limits = ("--bandwidth", "50e6", "--latency", "0.002")
    hosts = Hosts("--colocated", "3", before=before, of=(*of, *limits), folder=tmp_path)
    try:
        until(lambda: hosts.serves(3), "three executors on three hosts")
        status = hosts.status()
        networks = {namespaces(one["pid"])[0] for one in status["executors"]}
        assert networks == {namespaces(os.getpid())[0]}
        assert all(one["data"].startswith("127.0.0.") for one in status["hosts"])
    finally:
        said = hosts.close()
    assert ("no other can be had: ip: " in said) == (why == "not permitted")
    assert "namespaces of their own: mount ipc" in said
    assert "Bandwidth is limited by the data wire" in said
    assert "Latency is limited by the data wire" in said


# the network alone


def pulled(network: HostNetwork, source: int, target: int) -> float:
    """Bytes a second of one connection, the payload alone."""
    script = [sys.executable, "-c", PULL, "5000", str(SIZE)]
    server = subprocess.Popen([*network.prefix(source), *script], stdout=subprocess.PIPE, text=True)
    reader = [*network.prefix(target), sys.executable, "-c", READ, network.addresses[source]]
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        said = subprocess.run(reader, capture_output=True, text=True, check=True).stdout
    return float(said)


@pytest.mark.parametrize(("source", "target"), [(1, 0), (0, 1), (1, 2)])
def test_a_bandwidth_limit_holds_on_the_way_out_of_every_host(source: int, target: int) -> None:
    wanted = 4e6
    network = open_network(3, LinkLimits(bytes_per_s=wanted))
    try:
        if not network.limits.bytes_per_s:
            pytest.skip("this kernel has no token buckets")
        measured = pulled(network, source, target)
    finally:
        network.close()
    assert 0.75 * wanted < measured < 1.1 * wanted


def test_without_a_limit_it_is_fast() -> None:
    network = open_network(3, LinkLimits())
    try:
        assert pulled(network, 1, 2) > 40e6
    finally:
        network.close()


def test_latency_is_all_there_or_left_to_the_wires() -> None:
    network = open_network(2, LinkLimits(latency_s=0.3))
    try:
        expected = network.limits.latency_s
        assert expected in {0.0, 0.3}
        with socket.create_server((network.addresses[0], 0)) as listener:
            port = str(listener.getsockname()[1])
            command = [*network.prefix(1), sys.executable, "-c", DIAL, network.addresses[0], port]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        network.close()
    assert expected <= float(said) < expected + 0.15, "a question and its answer"


def test_several_networks_can_be_there_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_network(2, LinkLimits())
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid % 1000 + 5_000_000)
    try:
        other = open_network(2, LinkLimits())
        assert not set(one.addresses) & set(other.addresses)
        other.close()
        assert linked(pid)
        assert not linked(os.getpid())
    finally:
        one.close()


@pytest.mark.parametrize("step", ["connect", "limit", "reach"])
def test_what_fails_on_the_way_leaves_nothing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    children = own.children()
    whole = getattr(HostNetwork, step)

    def fail(self: HostNetwork, *arguments: object) -> None:
        whole(self, *arguments)
        raise NetworkRefusedError("not today")

    monkeypatch.setattr(HostNetwork, step, fail)
    began = time.monotonic()
    with pytest.raises(NetworkRefusedError, match="not today"):
        open_network(3, LinkLimits(bytes_per_s=1e6))
    assert time.monotonic() - began < 10
    assert own.children() == children


def test_a_machine_without_the_tools_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_network.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NetworkRefusedError, match="there is no ip"):
        open_network(2, LinkLimits())
