"""Requests of one token that one front carries on its core, driven by wrk."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.report import Bar, Table, middle, skipped, spread
from benchmarks.samples import Sampled, tables
from benchmarks.trees import get, serving
from tercet.runtime.endpoints import free_ports

TITLE = "One front: requests of one token"
COMMAND = "python -m benchmarks --only front"
CONNECTIONS = 64
WARM_S = 2
RUN_S = 5
RUNS = 3
PROMPT = list(range(300, 308))


@dataclass(frozen=True)
class Run:
    """One run of wrk."""

    rate: float
    """Requests a second."""
    p50_ms: float
    p99_ms: float
    bad: int
    """Answers that were no 200, and errors of sockets."""
    cpu: float
    """Share of a core that the front took."""


def front() -> Table:
    """Load the real tree, then the echo service, then the tree again under the sampler."""
    if shutil.which("wrk") is None:
        return skipped(TITLE, COMMAND, "this needs wrk: apt-get install wrk (Debian, Ubuntu)")
    with _tree() as (port, process):
        real = [_load(port, process) for _ in range(RUNS)]
    with _echo() as (port, process):
        echo = [_load(port, process) for _ in range(RUNS)]
    sampled = Sampled("tercet.runtime.front")
    with _tree(sampled.environment()) as (port, process):
        sampled.take(process.pid)
        run = _load(port, process)
        counts = sampled.take(process.pid)
    by_package, by_function = tables(counts, "the front's process", 1e6 * run.cpu / run.rate)
    rate = middle([one.rate for one in real])
    return Table(
        title=TITLE,
        command=COMMAND,
        columns=(
            *("behind it", "requests/s", "range", "p50, ms", "p99, ms"),
            *("front's core, %", "requests per CPU second", "not 200"),
        ),
        rows=[
            _row("the whole tree, device cost", real),
            _row("the echo service (HTTP alone)", echo),
            _row("the tree while it is sampled", [run]),
        ],
        bars=(
            Bar(what="one front", value=rate, bound=1000, unit="requests/s", at_least=True),
            Bar(what="the aim", value=rate, bound=2000, unit="requests/s", at_least=True),
        ),
        note=(
            f"`wrk -t1 -c{CONNECTIONS} -d{RUN_S}s`, POST /v1/completions with {len(PROMPT)} "
            "token ids and max_tokens 1. The front has one core for itself; wrk, executor and the "
            "rest share the others. Samples: one each tick of the front's CPU time."
        ),
        further=(by_package, by_function),
    )


@contextlib.contextmanager
def _tree(environment: dict[str, str] | None = None) -> Iterator[tuple[int, psutil.Process]]:
    names = ["--served-model-name", "bench"]
    with serving(["cost:135m", "--log-level", "warning", *names], environment) as served:
        process = served.front()
        _pin(process, [psutil.Process(pid) for pid in served.processes()])
        yield served.port, process


@contextlib.contextmanager
def _echo() -> Iterator[tuple[int, psutil.Process]]:
    port = free_ports("127.0.0.1")
    popen = subprocess.Popen([sys.executable, "-m", "benchmarks.echo_front", str(port)])
    try:
        while get(port, "/ready") != 200:
            time.sleep(0.02)
        process = psutil.Process(popen.pid)
        _pin(process, [])
        yield port, process
    finally:
        popen.kill()
        popen.wait()


def _pin(front_process: psutil.Process, others: Sequence[psutil.Process]) -> None:
    """Give the front the first core and everybody else the others, if there are others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    for process in others:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores[1:])
    for thread in front_process.threads():
        os.sched_setaffinity(thread.id, cores[:1])


def _load(port: int, process: psutil.Process) -> Run:
    body = {"model": "bench", "prompt": PROMPT, "max_tokens": 1, "ignore_eos": True}
    script = (
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
        f"wrk.body = '{json.dumps(body)}'\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        _wrk(file.name, port, WARM_S)
        before = process.cpu_times()
        said = _wrk(file.name, port, RUN_S)
        after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    return Run(
        rate=float(_find(r"Requests/sec:\s+([\d.]+)", said)),
        p50_ms=_milliseconds(_find(r"50%\s+(\S+)", said)),
        p99_ms=_milliseconds(_find(r"99%\s+(\S+)", said)),
        bad=sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
        + sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", said))),
        cpu=spent / RUN_S,
    )


def _wrk(script: str, port: int, seconds: int) -> str:
    url = f"http://127.0.0.1:{port}/v1/completions"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", script, url]
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, cores[1:])
    said, _ = process.communicate()
    return said


def _row(name: str, runs: Sequence[Run]) -> tuple[str | float, ...]:
    rates = [run.rate for run in runs]
    return (
        name,
        middle(rates),
        spread(rates),
        middle([run.p50_ms for run in runs]),
        middle([run.p99_ms for run in runs]),
        100 * middle([run.cpu for run in runs]),
        middle([run.rate / run.cpu for run in runs]),
        sum(run.bad for run in runs),
    )


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"wrk said something else than expected:\n{text}")
    return found.group(1)


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)
