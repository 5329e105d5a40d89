"""`tercet cluster local` as a person starts it, looked at from outside."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tercet.runtime.endpoints import free_ports

PATIENCE_S = 90.0
MODEL = "random:llama?seed=7"
PROMPTS = [[random.Random(number).randrange(1, 250) for _ in range(400)] for number in range(24)]


def status_at(url: str) -> dict[str, Any]:
    """What a server says of itself; nothing, if it does not."""
    try:
        with urllib.request.urlopen(f"{url}/tercet/status", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, urllib.error.URLError):
        return {"executors": [], "transfers": {}, "hosts": []}


class Hosts:
    """`tercet cluster local` as a person starts it."""

    def __init__(
        self,
        *arguments: str,
        of: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        folder: Path | None = None,
    ) -> None:
        """`of`: options of `cluster local`; `before`: what runs it; `folder`: where it keeps what
        is temporary.
        """
        port = free_ports("127.0.0.1")
        self.url = f"http://127.0.0.1:{port}"
        command = [*before, sys.executable, "-c", "from tercet.cli.main import main; main()"]
        command += ["cluster", "local", "--hosts", "3", *of, MODEL, "--served-model-name", "tiny"]
        command += ["--port", str(port), "--threads", "1", "--kv-cache-memory-bytes", "2MiB"]
        command += ["--context-max", "480", "--pool-dram", "64MiB"]
        command += ["--set", "pool.value_tokens=32", *arguments]
        environment = dict(os.environ) if folder is None else {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        return status_at(self.url)

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
        joined = []
        for process in psutil.Process(self.process.pid).children():
            titles = [_title(one) for one in process.children()]
            if "tercet: node agent" in titles and "tercet: front" not in titles:
                joined.append(process)
        victims = [joined[0], *joined[0].children(recursive=True)]
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)

    def close(self, number: int = signal.SIGTERM) -> str:
        """End it by this signal, and see that no process is left; gives what it said."""
        everything = []
        if self.process.poll() is None:
            everything = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(number)
        try:
            said, _ = self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
        _, alive = psutil.wait_procs(everything, timeout=20)
        assert not alive, "the command ended and left processes"
        return said


def _title(process: psutil.Process) -> str:
    return (process.cmdline() or [""])[0]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.1)
