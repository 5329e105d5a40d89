"""`tercet cluster local`: several hosts on one machine, which share nothing and talk over TCP."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from tercet.base.errors import Invalid
from tercet.runtime.process import die_with_parent

OPEN_S = 60.0
MAIN = "from tercet.cli.main import main; main()"
NAMESPACES = ("--mount", "--ipc")
"""What each host gets of its own where that is permitted."""


@click.group()
def command() -> None:
    """Clusters for tests and demonstrations."""


@command.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--hosts", default=3, show_default=True, type=click.IntRange(1, 16))
@click.option("--bandwidth", type=float, help="Bytes/s that each host lets others read.")
@click.option("--latency", type=float, help="Seconds before each answer between hosts.")
@click.argument("serve", nargs=-1, type=click.UNPROCESSED)
def local(
    hosts: int, bandwidth: float | None, latency: float | None, serve: tuple[str, ...]
) -> None:
    """Start HOSTS hosts here; what follows is given to `tercet serve` of the first.

    Each has a cache folder of its own and an address of its own on the loopback network. All end
    with this command.
    """
    limits = []
    if bandwidth:
        limits += ["--set", f"runtime.data_bytes_per_s={bandwidth}"]
    if latency:
        limits += ["--set", f"runtime.data_latency_s={latency}"]
    with tempfile.TemporaryDirectory(prefix="tercet-cluster-") as folder:
        sys.exit(_run(Path(folder), hosts, [*serve, *limits]))


def _run(folder: Path, hosts: int, serve: list[str]) -> int:
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    own = _namespaces()
    click.echo(f"Hosts have namespaces of their own: {' '.join(own) or 'none (not permitted)'}")
    cluster = f"127.0.0.1:{_free_ports()}"
    first = ["--cluster-address", cluster, "--cluster-secret-file", str(secret)]
    started = [_start(["serve", *serve, *first, "--hosts", str(hosts)], own, None)]
    _wait_for(cluster, started[0])
    for number in range(1, hosts):
        name = f"h{number}"
        join = ["join", cluster, "--secret-file", str(secret), "--host-name", name]
        join += ["--address", f"127.0.0.{number + 1}"]
        started.append(_start(join, own, folder / name))
    signal.signal(signal.SIGTERM, lambda *_: started[0].terminate())
    try:
        return started[0].wait()
    except KeyboardInterrupt:
        started[0].terminate()
        return started[0].wait()
    finally:
        for process in started[1:]:
            process.kill()
            process.wait()


def _start(arguments: list[str], own: list[str], cache: Path | None) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ)
    if cache is not None:
        cache.mkdir()
        environment["XDG_CACHE_HOME"] = str(cache)
    command = [*own, sys.executable, "-c", MAIN, *arguments]
    return subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)  # noqa: PLW1509, S603


def _namespaces() -> list[str]:
    """The prefix of a command that runs in namespaces of its own; nothing where not permitted."""
    prefix = ["unshare", *NAMESPACES]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603
    except OSError:
        return []
    return prefix if tried.returncode == 0 else []


def _free_ports() -> int:
    """A port with a free one behind it: the cluster's, and the first front's."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except (OSError, OverflowError):
                continue


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
