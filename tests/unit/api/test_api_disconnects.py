"""A client that goes away frees its job at once, whenever it goes."""

import asyncio
import json

import pytest
from api_client import CHAT, COMPLETIONS, MODEL, Answer, House

from tercet.api.config import ApiConfig
from tercet.api.echo import EchoService
from tercet.jobs.job import Failure, FailureCode, Finish, TaskOutput


def content(route, **fields):
    said = {"messages": [{"role": "user", "content": "a"}]} if route == CHAT else {"prompt": "abc"}
    return json.dumps({"model": "tiny", **said, "ignore_eos": True, **fields}).encode()


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_leaving_before_the_first_token_cancels(route, stream, n):
    """llama.cpp#24496, dynamo#13691: not noticed while queued, or before the first token."""
    house = House(pause_s=3600.0)
    body = content(route, stream=stream, n=n, max_tokens=100)
    answer = asyncio.run(house.call("POST", route, body, leave_after=0))
    assert house.service.cancelled == [house.service.jobs[0].id]
    assert house.service.num_running == 0
    assert answer.status == 0


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_leaving_in_mid_stream_cancels(route, after):
    """llama.cpp#13262."""
    house = House(pause_s=0.001)
    body = content(route, stream=True, max_tokens=300)
    answer = asyncio.run(house.call("POST", route, body, leave_after=after))
    assert house.service.cancelled == [house.service.jobs[0].id]
    assert house.service.num_running == 0
    assert not answer.whole


def test_leaving_after_the_end_cancels_nothing():
    house = House()
    for stream in (False, True):
        assert house.complete(stream=stream).whole
    assert not house.service.cancelled


def test_leaving_while_the_body_is_read_submits_nothing():
    house = House()

    async def leave():
        messages = [
            {"type": "http.request", "body": b'{"mod', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return messages.pop(0)

        async def send(message):
            raise AssertionError(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "headers": headers}
        await house.app({**scope, "root_path": "", "query_string": b""}, receive, send)

    asyncio.run(leave())
    assert not house.service.jobs


def test_a_cancelled_handler_cancels_its_job():
    house = House(pause_s=3600.0)

    async def stop():
        call = asyncio.create_task(house.call("POST", COMPLETIONS, content(COMPLETIONS)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert house.service.jobs
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(stop()) == []
    assert house.service.cancelled == [house.service.jobs[0].id]


def test_no_task_outlives_its_request():
    house = House()

    async def many():
        for stream in (False, True):
            for leave_after in (None, 0, 1):
                body = content(COMPLETIONS, stream=stream, max_tokens=50)
                await house.call("POST", COMPLETIONS, body, leave_after=leave_after)
        await asyncio.sleep(0.01)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(many()) == []


def test_pieces_that_come_late_are_dropped():
    house = House()
    kept = []
    submit = house.service.submit
    house.service.submit = lambda job, sink: (kept.append(sink), submit(job, sink))
    house.complete(max_tokens=1)
    house.complete(max_tokens=1, stream=True)
    body = content(COMPLETIONS, max_tokens=50)
    house.service.pause_s = 3600.0
    asyncio.run(house.call("POST", COMPLETIONS, body, leave_after=0))
    for sink in kept:
        exchange = sink.__self__
        for _ in range(3):
            sink(None)
        assert exchange._ready == []


def test_a_client_that_reads_too_slowly_loses_its_job():
    """I6: what waits for one client is bounded."""
    house = House(ApiConfig(pieces_max=50))
    answer = Answer()

    async def read_slowly():
        left = asyncio.Event()
        body = [{"type": "http.request", "body": content(COMPLETIONS, stream=True, n=4)}]

        async def receive():
            if body:
                return body.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            answer.chunks.append(message.get("body", b""))
            answer.whole = not message.get("more_body", message["type"].endswith("start"))
            await asyncio.sleep(0.01)  # the echo goes on at every turn of the loop
            if answer.whole:
                left.set()

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "headers": headers}
        await house.app({**scope, "root_path": "", "query_string": b""}, receive, send)

    asyncio.run(read_slowly())
    assert answer.whole
    assert answer.events[-1]["error"]["code"] == "client_too_slow"
    assert house.service.cancelled[0] == house.service.jobs[0].id
    assert house.service.num_running == 0


def test_what_came_before_a_failure_is_delivered():
    class Burst(EchoService):
        def submit(self, job, sink):
            self.jobs.append(job)
            task = job.id << 12
            failure = Failure(FailureCode.EXECUTOR_LOST, "")
            sink(TaskOutput(task=task, tokens=(97, 98)))
            sink(TaskOutput(task=task, finish=Finish.FAILED, failure=failure))

    house = House()
    house.service.submit = Burst((MODEL,)).submit
    text, error = house.complete(stream=True, max_tokens=9).events
    assert text["choices"][0]["text"] == "ab"
    assert error["error"]["code"] == "executor_lost"
    assert house.complete(max_tokens=9).status == 500
