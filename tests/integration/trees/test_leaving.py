"""Clients that leave, at every moment of their request: what they had is free again at once."""

import dataclasses
import json
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from house import PROMPT, House, tree_config, until

from tercet.devices.cost.config import CostConfig
from tercet.job_executor.config import JobExecutorConfig
from tercet.runtime.config import TreeConfig

Build = Callable[[TreeConfig], House]
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
STEPS = 'tercet:facts_total{detail="",fact="step.done"}'
CHAT = {"messages": [{"role": "user", "content": "Tell me everything."}]}


def metric(house: House, *names: str) -> list[float]:
    lines = house.client.get("/metrics").text.splitlines()
    return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names)]


def jobs(house: House) -> tuple[int, int]:
    about = house.client.get("/health").json()
    return int(about["jobs_running"]), int(about["jobs_queued"])


def free(house: House) -> bool:
    """Nothing runs, waits or holds a block, as front and executors tell it."""
    return jobs(house) == (0, 0) and not any(metric(house, *GAUGES))


def begin(house: House, **fields: object) -> socket.socket:
    """Send a request and leave the answer to come."""
    body = {"model": "tiny", "ignore_eos": True, "max_tokens": 3500, **fields}
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    content = json.dumps(body).encode()
    address = httpx.URL(house.tree.url)
    connection = socket.create_connection((address.host, address.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "asked", [{"prompt": PROMPT}, {"prompt": [PROMPT, "x"], "n": 3}, CHAT, CHAT | {"n": 2}]
)
def test_in_the_midst_of_an_answer(house: House, asked: dict[str, object], stream: bool) -> None:
    """llama.cpp#24496, #13262, #15232: a disconnect that is not noticed."""
    connection = begin(house, **asked, stream=stream)
    until(lambda: jobs(house) == (1, 0), "it runs")
    connection.close()
    until(lambda: free(house), "everything is free")
    steps = metric(house, STEPS)
    assert house.complete(max_tokens=4)
    until(lambda: metric(house, STEPS) > steps, "only the new request's steps are done")


@pytest.mark.parametrize("stream", [False, True])
def test_while_a_long_prompt_is_computed(house: House, stream: bool) -> None:
    """dynamo#13691: the prefill goes on after a disconnect before the first token."""
    prompts = [[index] * 3900 for index in range(24)]
    connection = begin(house, prompt=prompts, max_tokens=8, stream=stream)
    until(lambda: jobs(house) == (1, 0), "it runs")
    connection.close()
    until(lambda: free(house), "everything is free")
    told = metric(house, 'tercet:fact_values_total{fact="task.cancelled",value="tokens"}')
    assert told, "tasks were cancelled"


@pytest.mark.parametrize("stream", [False, True])
def test_while_it_waits_behind_others(house: House, stream: bool) -> None:
    """llama.cpp#15232: not noticed while queued, so that it is computed for nobody."""
    busy = [begin(house, prompt="a", n=128) for _ in range(2)]
    until(lambda: jobs(house) == (2, 0), "the executors are full")
    waiting = [begin(house, prompt="b", stream=stream) for _ in range(5)]
    until(lambda: jobs(house) == (2, 5), "others wait")
    for connection in waiting:
        connection.close()
    until(lambda: jobs(house) == (2, 0), "nobody waits")
    for connection in busy:
        connection.close()
    until(lambda: free(house), "everything is free")


def test_what_one_left_is_no_other_ones_text(house: House) -> None:
    """sglang#36475: after a disconnect the next request with the same prompt was broken."""
    undisturbed = house.complete(max_tokens=60)
    for _ in range(20):
        house.stream(max_tokens=2000).after(1).leave()
        assert house.complete(max_tokens=60) == undisturbed
    until(lambda: free(house), "everything is free")


def test_more_requests_than_there_is_room_for_are_all_answered(cache: Path, build: Build) -> None:
    """sglang#13894: mass 503 at many connections; #3802: clients' mistakes count as failures."""
    config = dataclasses.replace(
        tree_config(cache, device="cost", kv_cache_memory_bytes=4096),
        job_executor=JobExecutorConfig(max_queued_jobs=40),
        cost=CostConfig(step_ns=50e6),
    )
    house = build(config)
    asked = [{"n": 128}] * 2 + [{}, {}, {"max_tokens": -1}] * 100
    connections = [begin(house, **{"prompt": "a", "max_tokens": 40} | fields) for fields in asked]
    answers = [connection.recv(65536) for connection in connections]
    for connection in connections:
        connection.close()
    statuses = [int(answer[9:12]) for answer in answers]
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
    assert statuses.count(400) == 100
    assert statuses.count(200) + len(refused) == 202
    assert statuses.count(200) >= 40
    assert refused
    assert all(b"retry-after: " in answer for answer in refused)
    until(lambda: free(house), "everything is free")
    assert house.ready()
    assert house.complete(max_tokens=3)
