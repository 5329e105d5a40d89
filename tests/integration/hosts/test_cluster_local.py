"""Three hosts that share nothing but TCP: what one computed the others have, bit for bit, and a
host that dies takes only its share.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

PATIENCE_S = 90.0
MODEL = "random:llama?seed=7"
PROMPTS = [[random.Random(number).randrange(1, 250) for _ in range(400)] for number in range(24)]


class Hosts:
    """`tercet cluster local` as a person starts it."""

    def __init__(self, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-c", "from tercet.cli.main import main; main()"]
        command += ["cluster", "local", "--hosts", "3", MODEL, "--served-model-name", "tiny"]
        command += ["--port", str(port), "--threads", "1", "--kv-cache-memory-bytes", "2MiB"]
        command += ["--context-max", "480", "--pool-dram", "64MiB"]
        command += ["--set", "pool.value_tokens=32", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.url}/tercet/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, urllib.error.URLError):
            return {"executors": [], "transfers": {}, "hosts": []}

    def serves(self, count: int) -> bool:
        executors = self.status()["executors"]
        return sum(one["state"] == "ready" and one["connected"] for one in executors) == count

    def ask(self, prompt: list[int]) -> tuple[list[int], Any]:
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": 10,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 2,
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            choice = json.load(answer)["choices"][0]
        return choice["token_ids"], choice["logprobs"]

    def ask_all(self) -> list[Any]:
        with ThreadPoolExecutor(6) as pool:
            return list(pool.map(self.ask, PROMPTS))

    def kill_host(self) -> None:
        """Everything of one host that joined, at once."""
        joined = [
            process
            for process in psutil.Process(self.process.pid).children()
            if not any(_title(one) == "tercet: front" for one in process.children())
        ]
        victims = [joined[0], *joined[0].children(recursive=True)]
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)

    def close(self) -> None:
        everything = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        _, alive = psutil.wait_procs(everything, timeout=20)
        assert not alive, "the command ended and left processes"


def _title(process: psutil.Process) -> str:
    return (process.cmdline() or [""])[0]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.1)


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
