"""`tercet cluster local`: several hosts on one machine, which share nothing and talk over TCP."""

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click

from tercet.base.errors import Invalid
from tercet.models.locks import is_at
from tercet.runtime.endpoints import free_ports
from tercet.runtime.host_network import (
    HOSTS_MAX,
    HostNetwork,
    LinkLimits,
    NetworkRefusedError,
    open_network,
)
from tercet.runtime.process import die_with_parent

OPEN_S = 60.0
MAIN = "from tercet.cli.main import main; main()"
NAMESPACES = ("--mount", "--ipc")
"""What each host gets of its own where that is permitted, besides a network."""
FOLDER = "tercet-cluster-"


class Site(NamedTuple):
    """Where a host runs."""

    address: str
    prefix: list[str]
    """How a command begins that runs there."""


@click.group()
def command() -> None:
    """Clusters for tests and demonstrations."""


@command.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--hosts", default=3, show_default=True, type=click.IntRange(1, HOSTS_MAX))
@click.option(
    "--bandwidth", default=0.0, type=click.FloatRange(min=0), help="Bytes/s that leave each host."
)
@click.option(
    "--latency", default=0.0, type=click.FloatRange(min=0), help="Seconds to another host and back."
)
@click.option(
    "--network-namespaces/--no-network-namespaces",
    "networks",
    default=True,
    help="A network of their own where that is permitted, or loopback addresses.",
)
@click.argument("serve", nargs=-1, type=click.UNPROCESSED)
def local(
    *, hosts: int, bandwidth: float, latency: float, networks: bool, serve: tuple[str, ...]
) -> None:
    """Start HOSTS hosts here; what follows is given to `tercet serve` of the first.

    Each has a cache folder of its own and, where that is permitted, namespaces of its own: network
    (but for the first, which is reached as always), mounts and IPC. All end with this command.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_now)
    wanted = LinkLimits(bytes_per_s=bandwidth, latency_s=latency)
    with ExitStack() as stack:
        folder = stack.enter_context(_own_folder())
        network = _network(hosts, wanted, stack) if networks else None
        own = _namespaces()
        if network is None:
            sites = [Site(f"127.0.0.{number + 1}", own) for number in range(hosts)]
        else:
            addresses = enumerate(network.addresses)
            sites = [Site(address, [*network.prefix(host), *own]) for host, address in addresses]
        kept = LinkLimits() if network is None else network.limits
        named = [name.removeprefix("--") for name in own[1:]]
        if network is not None:
            named.insert(0, "network")
        click.echo(f"Hosts have namespaces of their own: {' '.join(named) or 'none'}")
        sys.exit(_run(folder, sites, [*serve, *_in_the_wire(wanted, kept)]))


def _network(hosts: int, wanted: LinkLimits, stack: ExitStack) -> HostNetwork | None:
    """Open a network where that is permitted, closed with the stack; say why not elsewhere."""
    try:
        network = open_network(hosts, wanted)
    except NetworkRefusedError as error:
        click.echo(f"Hosts share the loopback network, no other can be had: {error}")
        return None
    stack.callback(network.close)
    return network


def _in_the_wire(wanted: LinkLimits, kept: LinkLimits) -> list[str]:
    """Options of `serve` for the limits that the kernel does not keep."""
    options: list[str] = []
    for name, limit, by_kernel, key in (
        ("Bandwidth", wanted.bytes_per_s, kept.bytes_per_s, "runtime.data_bytes_per_s"),
        ("Latency", wanted.latency_s, kept.latency_s, "runtime.data_latency_s"),
    ):
        if limit:
            click.echo(f"{name} is limited by {'the kernel' if by_kernel else 'the data wire'}")
        if limit and not by_kernel:
            options += ["--set", f"{key}={limit}"]
    return options


def _run(folder: Path, sites: list[Site], serve: list[str]) -> int:
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    address = sites[0].address
    cluster = f"{address}:{free_ports(address, 2)}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        first = ["--cluster-address", cluster, "--cluster-secret-file", str(secret)]
        first += ["--hosts", str(len(sites))]
        started.append(_start(["serve", *serve, *first], sites[0], None))
        _wait_for(cluster, started[0])
        for number, site in enumerate(sites[1:], 1):
            name = f"h{number}"
            join = ["join", cluster, "--secret-file", str(secret), "--host-name", name]
            join += ["--address", site.address]
            started.append(_start(join, site, folder / name))
        # Once for a drain, again for the end: each is passed on.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: started[0].terminate())
        return started[0].wait()
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _start(arguments: list[str], site: Site, cache: Path | None) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ)
    if cache is not None:
        cache.mkdir()
        environment["XDG_CACHE_HOME"] = str(cache)
    command = [*site.prefix, sys.executable, "-c", MAIN, *arguments]
    # A session of its own: Ctrl-C is for this command, which passes it on once.
    return subprocess.Popen(  # noqa: S603
        command,
        env=environment,
        preexec_fn=die_with_parent,  # noqa: PLW1509
        start_new_session=True,
    )


def _end_now(*_: object) -> None:
    """Whatever was begun is taken back on the way out."""
    raise SystemExit(0)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder that nobody else reads, removed at the end. What commands left that were killed is
    removed first: a folder is locked for as long as its command lives.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        with suppress(FileNotFoundError), ExitStack() as stack:
            if is_at(stack.enter_context(_locked(folder, fcntl.LOCK_EX)), folder):
                kept = stack.pop_all()
                break  # nobody took it for a dead one's
    with kept:
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, how)
        yield descriptor
    finally:
        os.close(descriptor)


def _namespaces() -> list[str]:
    """The prefix of a command that runs in namespaces of its own; nothing where not permitted."""
    prefix = ["unshare", *NAMESPACES]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603
    except OSError:
        return []
    return prefix if tried.returncode == 0 else []


def _wait_for(cluster: str, first: "subprocess.Popen[bytes]") -> None:
    host, _, port = cluster.rpartition(":")
    deadline = time.monotonic() + OPEN_S
    while time.monotonic() < deadline:
        if first.poll() is not None:
            raise Invalid("The first host ended before others could join.", code="failed")
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise Invalid(f"The first host did not open {cluster} within {OPEN_S:g} s.", code="failed")
