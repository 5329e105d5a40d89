"""How a tree ends, and that nothing of it is left."""

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from house import House, tree_config, until

from tercet.base.errors import Invalid
from tercet.runtime.config import TreeConfig
from tercet.runtime.tree import start_tree

Build = Callable[[TreeConfig], House]


@pytest.fixture
def shared_memory() -> list[str]:
    return sorted(path.name for path in Path("/dev/shm").iterdir())


def test_sigterm_lets_running_jobs_finish(
    cache: Path, build: Build, shared_memory: list[str]
) -> None:
    """vllm#24885: SIGTERM aborted running requests."""
    house = build(tree_config(cache))
    stream = house.stream(max_tokens=600).after(3)
    house.tree.terminate()
    until(lambda: house.client.get("/ready").status_code == 503, "readiness off")
    refused = house.client.post("/v1/completions", json={"model": "tiny", "prompt": "x"})
    assert refused.status_code == 503
    stream.finish()
    assert house.tree.wait(60) == 0
    assert house.gone()
    assert sorted(path.name for path in Path("/dev/shm").iterdir()) == shared_memory


def test_jobs_that_do_not_finish_in_time_end_with_an_error(cache: Path, build: Build) -> None:
    house = build(tree_config(cache, shutdown_timeout_s=0.3))
    stream = house.stream(max_tokens=4000).after(3)
    house.tree.terminate()
    stream.wait()
    assert "shutting down" in stream.error
    assert house.tree.wait(60) == 0
    assert house.gone()


def test_a_second_signal_ends_at_once(cache: Path, build: Build) -> None:
    house = build(tree_config(cache))
    stream = house.stream(max_tokens=4000).after(3)
    house.tree.terminate()
    until(lambda: house.client.get("/ready").status_code == 503, "readiness off")
    house.tree.process.send_signal(signal.SIGINT)
    assert house.tree.wait(60) == 128 + signal.SIGINT
    stream.wait()
    assert stream.broken
    assert house.gone()


def test_nothing_outlives_a_killed_supervisor(
    cache: Path, build: Build, shared_memory: list[str]
) -> None:
    house = build(tree_config(cache, replicas=2))
    house.stream(max_tokens=4000).after(3)
    house.processes()
    house.kill(house.executors()[0], signal.SIGSTOP)
    house.kill(house.pid("tercet: node agent"), signal.SIGSTOP)
    house.kill(house.tree.process.pid)
    house.tree.process.wait()
    until(house.gone, "every process ends")
    assert sorted(path.name for path in Path("/dev/shm").iterdir()) == shared_memory


def test_a_port_that_is_taken_is_told_in_a_sentence(cache: Path, build: Build) -> None:
    house = build(tree_config(cache))
    port = int(house.tree.url.rsplit(":", 1)[1])
    with pytest.raises(Invalid, match=f"port {port}"):
        start_tree(tree_config(cache, port=port))


def test_a_configuration_too_long_for_one_message_reaches_every_process(
    cache: Path, build: Build
) -> None:
    template = "{# " + "x" * 400_000 + " #}{{ messages[0].content }}"
    house = build(dataclasses.replace(tree_config(cache), chat_template=template))
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "abc"}],
        "max_tokens": 2,
        "ignore_eos": True,
    }
    answer = house.client.post("/v1/chat/completions", json=body)
    assert answer.json()["usage"]["prompt_tokens"] == 3
    zygote, agent = house.pid("tercet: zygote"), house.pid("tercet: node agent")
    house.kill(zygote)
    house.kill(agent)
    house.kill(house.executors()[0])
    until(lambda: house.ready() and house.pids("tercet: zygote") != [zygote], "all are back")
    house.complete()
