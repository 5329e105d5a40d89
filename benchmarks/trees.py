"""Process trees under measurement: `tercet serve` as a person starts it, watched from outside."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tercet.runtime.endpoints import free_ports

TERCET = str(Path(sys.executable).with_name("tercet"))
POLL_S = 0.005
START_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Served:
    """A tree that answers."""

    port: int
    ready_s: float
    """From the start of the command until `GET /ready` was 200."""
    supervisor: psutil.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> dict[int, str]:
        """Titles of all processes by id."""
        found = {}
        for process in [self.supervisor, *self.supervisor.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found[process.pid] = (process.cmdline() or [""])[0].removeprefix("tercet: ")
        return found

    def front(self) -> psutil.Process:
        return next(
            psutil.Process(pid) for pid, name in self.processes().items() if name == "front"
        )

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each process since it began, by title."""
        spent: dict[str, float] = {}
        for pid, name in self.processes().items():
            times = psutil.Process(pid).cpu_times()
            spent[name] = spent.get(name, 0.0) + times.user + times.system
        return spent


@contextlib.contextmanager
def serving(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    command: Sequence[str] = ("serve",),
) -> Iterator[Served]:
    """Serve for as long as the context lasts; nothing of the tree is left after it."""
    port = free_ports("127.0.0.1")
    whole = [TERCET, *command, *arguments, "--port", str(port), "--shutdown-timeout", "2"]
    with tempfile.TemporaryFile("w+") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            whole,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ) | dict(environment or {}),
        )
        try:
            ready_s = _until_ready(process, port, began, log)
            yield Served(port, ready_s, psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def get(port: int, path: str) -> int:
    """Give the status of a GET, 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _until_ready(process: "subprocess.Popen[bytes]", port: int, began: float, log: object) -> float:
    while get(port, "/ready") != 200:
        if process.poll() is not None or time.perf_counter() - began > START_TIMEOUT_S:
            raise RuntimeError(f"`tercet serve` did not become ready:\n{_text(log)}")
        time.sleep(POLL_S)
    return time.perf_counter() - began


def _text(log: object) -> str:
    log.seek(0)  # type: ignore[attr-defined]
    return str(log.read())  # type: ignore[attr-defined]
