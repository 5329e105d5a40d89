"""Several hosts as process trees of their own on this machine, which talk over TCP alone."""

import contextlib
import dataclasses
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import traces
from handed_over import status
from house import House, alive, processes_of, until
from peers import unrest_of_peers

from tercet.cli.serve import in_place
from tercet.runtime.config import TreeConfig
from tercet.runtime.endpoints import free_ports

ROLES = {"prefill": 2, "decode": 3, "colocated": 0}
MAIN = "from tercet.cli.main import main; main()"
EXECUTOR = "tercet: task executor"
_ARENA = re.compile(r"tercet-kv-(\d+)")
Ends = tuple[str, int, str, int]
"""Of a TCP connection: address and port here and there."""


def clustered(config: TreeConfig, folder: Path, *, hosts: int) -> TreeConfig:
    """The first host of so many, with a secret in a folder and all that it needs in its cache."""
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    runtime = dataclasses.replace(
        config.runtime,
        prefill=ROLES["prefill"],
        decode=ROLES["decode"],
        hosts=hosts,
        cluster_address=f"127.0.0.1:{free_ports('127.0.0.1', 2)}",
        cluster_secret_file=str(secret),
    )
    return in_place(dataclasses.replace(config, runtime=runtime))


class Joined:
    """One host that joins; it may be killed and come back with what its disk holds."""

    def __init__(self, config: TreeConfig, number: int, seen: dict[int, float]) -> None:
        runtime = config.runtime
        self.name = f"h{number}"
        self._seen = seen
        self._cache = Path(str(runtime.cluster_secret_file)).parent / self.name
        self._command = [sys.executable, "-c", MAIN, "join", str(runtime.cluster_address)]
        self._command += ["--secret-file", str(runtime.cluster_secret_file)]
        self._command += ["--host-name", self.name, "--address", f"127.0.0.{number + 1}"]
        self.start()

    def start(self) -> None:
        """Join the cluster, for the first time or again."""
        environment = os.environ | {"XDG_CACHE_HOME": str(self._cache)}
        self._tree = subprocess.Popen(
            self._command,
            env=environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def processes(self) -> dict[str, list[int]]:
        return processes_of(self._tree.pid, self._seen)

    def signal(self, number: int) -> None:
        """Send a signal to every process of this host."""
        for pids in self.processes().values():
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue

    def kill(self) -> None:
        """Nothing of it is left when this returns, but for its disk."""
        mine = [pid for pids in self.processes().values() for pid in pids]
        self.signal(signal.SIGKILL)
        self._tree.kill()  # it may have no title yet
        self._tree.wait()
        until(lambda: not any(alive(pid, self._seen.get(pid, 0.0)) for pid in mine), "it is dead")


class Cluster:
    """Stands where a `House` does; the first host has the front."""

    def __init__(self, config: TreeConfig) -> None:
        self.seen: dict[int, float] = {}
        self.joined = [Joined(config, at, self.seen) for at in range(1, config.runtime.hosts)]
        try:
            self.first = House(config)
        except BaseException:
            for host in self.joined:
                host.kill()
            raise
        self.tree = self.first.tree
        self.client = self.first.client
        self.ready: Callable[[], bool] = self.first.ready
        self.kill: Callable[..., None] = self.first.kill

    def processes(self) -> dict[str, list[int]]:
        """Of all hosts, by title."""
        found: dict[str, list[int]] = {}
        for host in (self.first, *self.joined):
            for title, pids in host.processes().items():
                found.setdefault(title, []).extend(pids)
        return found

    def pids(self, title: str) -> list[int]:
        """Those whose title begins so, ascending."""
        every = self.processes()
        return sorted(pid for name, pids in every.items() for pid in pids if name.startswith(title))

    def executors(self) -> list[int]:
        return self.pids(EXECUTOR)

    def gone(self) -> bool:
        return self.first.gone() and not any(alive(pid, born) for pid, born in self.seen.items())

    def close(self) -> None:
        """End all hosts, the first one last."""
        self.processes()
        for host in self.joined:
            host.kill()
        self.first.close()


def holdings(cluster: Cluster) -> Counter[str]:
    """What is the same whichever host an executor runs on: processes by kind, and arenas of
    executors that are dead, of which there are none.
    """
    every = cluster.processes()
    living = {title.split()[3] for title in every if title.startswith(EXECUTOR)}
    found: Counter[str] = Counter()
    for title, pids in every.items():
        for pid in pids:
            found[traces.kind(title)] += 1
            found.update(
                f"{traces.kind(title)}: a dead arena"
                for name in traces.of_process(pid)
                if (arena := _ARENA.search(name)) and arena[1] not in living
            )
    return found


def unrest_of_cluster(cluster: Cluster, count: int) -> str:
    """Say which host the cluster lacks, or takes for a former self; else what executors lack."""
    agents = cluster.pids("tercet: node agent")
    every = [one for pid in agents for one in psutil.Process(pid).net_connections("tcp")]
    listening = [one.laddr.port for one in every if one.status == psutil.CONN_LISTEN]
    hosts = {one["name"]: int(one["data"].rpartition(":")[2]) for one in status(cluster)["hosts"]}
    if len(hosts) != 1 + len(cluster.joined) or not set(hosts.values()) <= set(listening):
        return f"hosts and their ports: {hosts}, ports that listen: {listening}"
    return unrest_of_peers(cluster, count, roles=ROLES)


def connections(host: Joined) -> list[Ends]:
    """Every open TCP connection of a host's processes: both ends."""
    found: list[Ends] = []
    for pids in host.processes().values():
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                every = psutil.Process(pid).net_connections("tcp")
                open_ones = [one for one in every if one.status == psutil.CONN_ESTABLISHED]
                found += [(*one.laddr, *one.raddr) for one in open_ones]
    return found


def cut(ends: list[Ends]) -> bool:
    """Have the kernel break these connections; False if there is none, or it may not."""
    each = (
        f"( src {here} and sport = {port} and dst {there} and dport = {their_port} )"
        for here, port, there, their_port in ends
    )
    return _break(" or ".join(each))


def cut_ports(ports: set[int]) -> bool:
    """The same for all connections that one end of is such a port."""
    return _break(" or ".join(f"sport = {port} or dport = {port}" for port in sorted(ports)))


def _break(expression: str) -> bool:
    if not expression:
        return False  # without one all connections of this machine would be meant
    command = ["ss", "--kill", "--no-header", "--numeric", "--tcp", expression]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode == 0 and bool(ended.stdout.strip())


def may_cut() -> bool:
    """Whether the kernel breaks connections for us."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as stream,
        server.accept()[0] as other,
    ):
        try:
            if not cut([(*stream.getsockname(), *stream.getpeername())]):
                return False
        except OSError:
            return False
        time.sleep(0.05)
        try:
            return other.recv(1) == b""
        except ConnectionError:
            return True
