"""A whole process tree for tests: started small, watched from outside, asked over HTTP."""

import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from tercet.node_agent.config import NodeAgentConfig
from tercet.runtime.config import Fault, RuntimeConfig, TreeConfig
from tercet.runtime.tree import Tree, start_tree

MODEL = "random:llama?seed=7"
PATIENCE_S = 60.0
PROMPT = list(range(40, 72))
POISON = 200
"""A token that no stream of these tests generates: faults can be bound to it."""


def tree_config(cache: Path, *, faults: tuple[Fault, ...] = (), **runtime: object) -> TreeConfig:
    """One small model on one thread, with an agent of little patience."""
    base = RuntimeConfig(
        port=0,
        threads=1,
        check=True,
        kv_cache_memory_bytes=16 << 20,
        shutdown_timeout_s=20.0,
        faults=faults,
    )
    return TreeConfig(
        model=MODEL,
        cache_folder=str(cache),
        served_names=("tiny",),
        runtime=dataclasses.replace(base, **runtime),
        node_agent=NodeAgentConfig(progress_floor_s=1.5),
    )


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds; fail if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


class House:
    """A running tree and its processes by name."""

    def __init__(self, config: TreeConfig) -> None:
        self.tree: Tree = start_tree(config, timeout_s=PATIENCE_S)
        self.client = httpx.Client(base_url=self.tree.url, timeout=PATIENCE_S)
        self.seen: dict[int, float] = {}
        self.processes()

    def processes(self) -> dict[str, list[int]]:
        """Process ids by title, the supervisor's included; all are remembered."""
        return processes_of(self.tree.process.pid, self.seen)

    def pid(self, title: str) -> int:
        return self.pids(title)[0]

    def pids(self, title: str) -> list[int]:
        """Those whose title begins so, ascending."""
        every = self.processes()
        return sorted(pid for name, pids in every.items() for pid in pids if name.startswith(title))

    def executors(self) -> list[int]:
        return self.pids("tercet: task executor")

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def ready(self) -> bool:
        try:
            return self.client.get("/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def complete(self, *, max_tokens: int = 48, prompt: list[int] = PROMPT) -> str:
        return self.stream(max_tokens=max_tokens, prompt=prompt).finish()

    def stream(self, *, max_tokens: int = 48, prompt: list[int] = PROMPT) -> "Stream":
        return Stream(self.tree.url, prompt, max_tokens)

    def gone(self) -> bool:
        """Whether no process that was ever seen here is left."""
        return not any(alive(pid, born) for pid, born in self.seen.items())

    def close(self) -> None:
        """End the tree, if it has not ended."""
        if self.tree.process.poll() is None:
            self.processes()
        self.client.close()
        self.tree.close()


def processes_of(supervisor: int, seen: dict[int, float]) -> dict[str, list[int]]:
    """Process ids of one tree by title; when each was born is added to what was seen."""
    found: dict[str, list[int]] = {}
    try:
        parent = psutil.Process(supervisor)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in family:
        try:
            title = (process.cmdline() or [""])[0]
            seen[process.pid] = process.create_time()
        except psutil.NoSuchProcess:
            continue
        found.setdefault(title, []).append(process.pid)
    return found


def alive(pid: int, born: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Stream:
    """One streamed completion, read by a thread of its own."""

    def __init__(self, url: str, prompt: list[int], max_tokens: int) -> None:
        self.pieces: list[str] = []
        self.error = ""
        self.finishes: list[str] = []
        self.broken = ""
        self._url = url
        self._body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logit_bias": {str(POISON): -100},
            "stream": True,
        }
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def after(self, num_pieces: int) -> "Stream":
        """Wait until so many pieces have come."""
        until(lambda: len(self.pieces) >= num_pieces or not self._thread.is_alive(), "pieces")
        return self

    def finish(self) -> str:
        """The whole text of a stream that must end well, once."""
        self.wait()
        assert not self.error, self.error
        assert not self.broken, self.broken
        assert self.finishes == ["length"], self.finishes
        return "".join(self.pieces)

    def wait(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a stream that does not end"

    def leave(self) -> None:
        """Close the connection in the middle."""
        self._leave.set()
        self.wait()

    def _read(self) -> None:
        try:
            with (
                httpx.Client(timeout=PATIENCE_S) as client,
                client.stream("POST", f"{self._url}/v1/completions", json=self._body) as answer,
            ):
                if answer.status_code != 200:
                    self.error = answer.read().decode()
                    return
                for line in answer.iter_lines():
                    self._take(line)
                    if self._leave.is_set():
                        return
        except httpx.HTTPError as error:
            self.broken = repr(error)

    def _take(self, line: str) -> None:
        if not line.startswith("data: ") or line == "data: [DONE]":
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = event["error"]["message"]
            return
        for choice in event["choices"]:
            self.pieces.append(choice["text"])
            if choice["finish_reason"]:
                self.finishes.append(choice["finish_reason"])
