"""A host joins with the cluster's weights or not at all, and a sentence says so."""

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_cluster import PATIENCE_S, status_at, until

from tercet.models.config import ModelCacheConfig
from tercet.models.image.layout import SEAL_BYTES, read_header
from tercet.models.image.shelf import Shelf
from tercet.runtime.endpoints import free_ports

SMALL = ["--threads", "1", "--kv-cache-memory-bytes", "2MiB", "--context-max", "256"]


class Hosts:
    """A first host and one that joins, each in a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "secret"
        self.secret.write_text("0123456789abcdef")
        self.cluster = free_ports("127.0.0.1", 3)
        self.port = self.cluster + 2  # the one between is the front's
        self.url = f"http://127.0.0.1:{self.port}"
        self.started: list[subprocess.Popen[str]] = []

    def shelf(self, host: str) -> Shelf:
        return Shelf(ModelCacheConfig(folder=self.folder / host / "tercet"))

    def serve(self, seed: int, *arguments: str) -> "subprocess.Popen[str]":
        command = ["serve", f"random:llama?seed={seed}", "--served-model-name", "tiny", *SMALL]
        command += ["--port", str(self.port), "--cluster-address", f"127.0.0.1:{self.cluster}"]
        command += ["--cluster-secret-file", str(self.secret), *arguments]
        return self._start("first", command)

    def join(self) -> "subprocess.Popen[str]":
        command = ["join", f"127.0.0.1:{self.cluster}", "--secret-file", str(self.secret)]
        return self._start("second", [*command, "--host-name", "h1", "--address", "127.0.0.2"])

    def _start(self, host: str, command: list[str]) -> "subprocess.Popen[str]":
        main = [sys.executable, "-c", "from tercet.cli.main import main; main()"]
        process = subprocess.Popen(
            [*main, *command],
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / host)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def hosts(self) -> list[str]:
        return [one["name"] for one in status_at(self.url)["hosts"]]

    def complete(self, prompt: list[int]) -> list[int]:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 150, "temperature": 0}
        body |= {"ignore_eos": True, "return_token_ids": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found: list[int] = json.load(answer)["choices"][0]["token_ids"]
        return found

    def begin(self, prompts: list[list[int]]) -> None:
        """Ask, and do not mind what comes of it."""

        def ask(prompt: list[int]) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.complete(prompt)

        for prompt in prompts:
            threading.Thread(target=ask, args=(prompt,), daemon=True).start()

    def executors(self) -> list[Any]:
        found = status_at(self.url)["executors"]
        return [one for one in found if one["state"] == "ready" and one["connected"]]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        _, said = process.communicate(timeout=PATIENCE_S)
        print(process.args, "said:", said, sep="\n")  # seen where a test fails


def forge(shelf: Shelf, key: str, of: Path) -> None:
    """An image under that key, whole and sealed, of which one bit of one weight is another."""
    with of.open("rb") as file:
        header = read_header(file)
    assert header is not None
    data = bytearray(of.read_bytes())
    data[header.weights[0].offset + 2] ^= 4
    data[-SEAL_BYTES:] = hashlib.sha256(data[:-SEAL_BYTES]).digest()
    shelf.folder.mkdir(parents=True)
    shelf.path(key).write_bytes(data)


def wait_for_image(hosts: Hosts) -> Path:
    until(lambda: len(hosts.shelf("first").entries()) == 1, "the first host has its image")
    return next(hosts.shelf("first").folder.glob("*.image"))


def test_a_host_whose_image_has_other_weights_is_refused_in_one_sentence(hosts: Hosts) -> None:
    hosts.serve(7, "--colocated", "2")
    image = wait_for_image(hosts)
    key = image.stem
    forge(hosts.shelf("second"), key, image)
    until(lambda: len(hosts.executors()) == 2, "the first host serves alone")
    joiner = hosts.join()
    _, said = joiner.communicate(timeout=PATIENCE_S)
    assert joiner.returncode == 2
    found, expected = (hosts.shelf(host).weights(key) for host in ("second", "first"))
    assert f"{found}, expected {expected}" in said
    assert "other weights than the cluster" in said
    assert "Traceback" not in said
    assert hosts.hosts() == ["local"]


def test_without_that_image_it_loads_the_cluster_s_and_serves(hosts: Hosts) -> None:
    hosts.serve(7, "--colocated", "2", "--hosts", "2")
    key = wait_for_image(hosts).stem
    hosts.join()
    until(lambda: len(hosts.executors()) == 2, "one executor on each host")
    assert {one["host"] for one in hosts.executors()} == {"local", "h1"}
    assert hosts.shelf("second").weights(key) == hosts.shelf("first").weights(key)


def test_a_host_of_a_former_cluster_ends_when_the_new_one_has_other_weights(hosts: Hosts) -> None:
    """Its executors run on and would be taken for the new ones': same name, same kind."""
    first = hosts.serve(7, "--colocated", "2", "--hosts", "2")
    joiner = hosts.join()
    until(lambda: len(hosts.executors()) == 2, "one executor on each host")
    first.kill()
    first.wait()
    hosts.serve(8, "--colocated", "2")
    _, said = joiner.communicate(timeout=PATIENCE_S)
    assert joiner.returncode == 1
    assert "Host h1 has other weights than the cluster: " in said
    until(lambda: len(hosts.executors()) == 2, "the new cluster serves without it")
    assert {one["host"] for one in hosts.executors()} == {"local"}
    assert hosts.hosts() == ["local"]


def test_a_host_of_a_former_cluster_of_the_same_weights_goes_on(hosts: Hosts) -> None:
    """What it still computes for the former front is none of the new one's, which counts its jobs
    from one again.
    """
    first = hosts.serve(7, "--colocated", "2", "--hosts", "2")
    joiner = hosts.join()
    until(lambda: len(hosts.executors()) == 2, "one executor on each host")
    prompts = [[1 + number, *range(2, 20)] for number in range(8)]
    expected = [hosts.complete(prompt) for prompt in prompts]
    hosts.begin([[200 - number, *range(2, 20)] for number in range(60)])
    until(lambda: any(one["tasks"] for one in hosts.executors()), "executors compute")
    first.kill()
    first.wait()
    hosts.serve(7, "--colocated", "2", "--hosts", "2")
    until(lambda: {one["host"] for one in hosts.executors()} == {"local", "h1"}, "both serve again")
    assert joiner.poll() is None
    assert [hosts.complete(prompt) for prompt in prompts] == expected
    until(lambda: not any(one["tasks"] for one in hosts.executors()), "nothing is left")
