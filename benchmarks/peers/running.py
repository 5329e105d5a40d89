"""Systems as processes: a worker that obeys commands, a server that answers HTTP."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from benchmarks.peers.systems import System
from tercet.runtime.endpoints import free_ports

READY_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 300.0
POLL_S = 0.05
KV_ARENA = "/memfd:tercet-kv"


class Worker:
    """A system's worker process; one command at a time. `RuntimeError` if it fails or hangs."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.ready_s = 0.0
        """From the start of the process until it had given a first token."""
        self.version = ""

    def __enter__(self) -> Self:
        began = time.perf_counter()
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            list(self._system.worker),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=dict(os.environ) | dict(self._system.variables),
            start_new_session=True,
        )
        try:
            ready = self._line(READY_TIMEOUT_S)
        except RuntimeError:
            self._end()
            raise
        self.ready_s = time.perf_counter() - began
        versions = ready["ready"]
        self.version = " ".join(
            f"{name} {value}"
            for name, value in (versions.items() if isinstance(versions, dict) else ())
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def rate(self, command: Mapping[str, object]) -> float:
        """Have a command carried out; tokens a second."""
        if self._process.stdin is None:
            raise RuntimeError("a worker without pipes")
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._line(COMMAND_TIMEOUT_S)["tokens_per_s"]
        return float(str(answer))

    def _line(self, timeout_s: float) -> Mapping[str, object]:
        """The next answer; a worker that is too late for it is killed."""
        if self._process.stdout is None:
            raise RuntimeError("a worker without pipes")
        guard = threading.Timer(timeout_s, end_group, (self._process.pid,))
        guard.daemon = True
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        if not line:
            raise RuntimeError(f"{self._system.key} ended or hung: {_tail(self._log)}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _end(self) -> None:
        end_group(self._process.pid)
        self._process.wait()
        self._log.close()


@dataclass(frozen=True)
class Running:
    """A system's server that answers."""

    url: str
    process: psutil.Process

    def pss_mb(self) -> tuple[float, float]:
        """PSS of its whole tree in MB, and the part of it that is our KV arenas (peers: 0)."""
        whole = arenas = 0
        for process in [self.process, *self.process.children(recursive=True)]:
            with contextlib.suppress(OSError, psutil.Error):
                whole += pss_bytes(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
                arenas += arena_bytes(Path(f"/proc/{process.pid}/smaps").read_text())
        return whole / 1e6, arenas / 1e6


@contextlib.contextmanager
def serving(system: System) -> Iterator[Running]:
    """The system's own server, for as long as the context lasts."""
    port = free_ports("127.0.0.1")
    command = [part.replace("{port}", str(port)) for part in system.server]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(os.environ) | dict(system.variables),
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + READY_TIMEOUT_S
            while not _lists_models(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{system.key}'s server did not answer: {_tail(log)}")
                time.sleep(POLL_S)
            yield Running(f"http://127.0.0.1:{port}", psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            end_group(process.pid)
            process.wait()


def first_output_s(command: Sequence[str], variables: Mapping[str, str]) -> float:
    """Seconds from the start of a command until it wrote to its standard output."""
    began = time.perf_counter()
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ) | dict(variables),
        start_new_session=True,
    )
    if process.stdout is None:
        raise RuntimeError("a command without pipes")
    got = os.read(process.stdout.fileno(), 1)
    seconds = time.perf_counter() - began
    process.stdout.read()
    process.wait()
    if not got:
        raise RuntimeError(f"`{command[0]}` wrote nothing")
    return seconds


def end_group(leader: int) -> None:
    """Kill every process of the session that the leader began."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def pss_bytes(smaps: str) -> int:
    """The sum of all `Pss:` lines."""
    lines = smaps.splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def arena_bytes(smaps: str) -> int:
    """The sum of the `Pss:` lines of mappings that are our KV arenas."""
    total, inside = 0, False
    for line in smaps.splitlines():
        if "-" in line.partition(" ")[0]:
            inside = KV_ARENA in line
        elif inside and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total


def _lists_models(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        return answer.status == 200 and bool(json.loads(answer.read())["data"])
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False
    finally:
        connection.close()


def _tail(log: IO[str]) -> str:
    log.seek(0)
    return " | ".join(log.read().strip().splitlines()[-3:])[-500:]
