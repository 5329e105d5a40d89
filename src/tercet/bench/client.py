"""Send a workload to a server and record what came back, streaming."""

import asyncio
import time
from collections.abc import Callable

import httpx
import msgspec
from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.bench.posting import Origin, Poster
from tercet.bench.records import RequestRecord
from tercet.bench.stream import EventStream, refusal
from tercet.bench.workload import BenchRequest

Progress = Callable[[int], object]
_OK = 200


class Target(Struct, frozen=True, kw_only=True):
    """The server under load."""

    url: str
    model: str
    api_key: str | None = None
    timeout_s: float = 600.0
    ignore_eos: bool = True
    """Ask for exactly `max_tokens` tokens, so that runs compare."""
    temperature: float = 0.0

    def body(self, request: BenchRequest) -> bytes:
        """What is posted for the request."""
        fields: dict[str, object] = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return msgspec.json.encode(fields)


async def run_load(
    target: Target,
    requests: list[BenchRequest],
    *,
    concurrency: int | None,
    progress: Progress,
) -> tuple[list[RequestRecord], int]:
    """Every request's record in the order of `requests`, and the run's duration in ns.

    Requests with a time start then (open loop); `concurrency` bounds how many are open at once
    (closed loop where no times are given).
    """
    gate = asyncio.Semaphore(concurrency) if concurrency else None
    poster = Poster(Origin.of(target.url), api_key=target.api_key)
    started = time.monotonic_ns()

    async def one(request: BenchRequest) -> RequestRecord:
        if request.at_ns is not None:
            await asyncio.sleep((request.at_ns - time.monotonic_ns() + started) / 1e9)
        if gate is None:
            record = await _send(poster, target, request, started=started)
        else:
            async with gate:
                record = await _send(poster, target, request, started=started)
        progress(1)
        return record

    try:
        records = await asyncio.gather(*(one(request) for request in requests))
        return list(records), time.monotonic_ns() - started
    finally:
        poster.close()


async def served_model(url: str, api_key: str | None) -> str:
    """The id of the first model that the server lists; `Invalid` if it cannot be reached."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            answer = await client.get(f"{url.rstrip('/')}/v1/models", headers=headers)
            answer.raise_for_status()
            return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, IndexError) as error:
        raise Invalid(f"no server that lists its models at {url}: {error}") from error


async def _send(
    poster: Poster, target: Target, request: BenchRequest, *, started: int
) -> RequestRecord:
    body = target.body(request)
    scheduled = time.monotonic_ns() - started
    if request.at_ns is not None:
        scheduled = min(scheduled, request.at_ns)
    stream = EventStream()
    refused: list[bytes] = []

    def on_body(status: int, data: bytes) -> None:
        if status == _OK:
            stream.feed(data, time.monotonic_ns() - started)
        else:
            refused.append(data)

    try:
        async with asyncio.timeout(target.timeout_s):
            status = await poster.post("/v1/completions", body, on_body)
        error = stream.error if status == _OK else refusal(status, b"".join(refused))
    except TimeoutError:
        error = "timeout"
    except OSError as problem:
        error = type(problem).__name__
    return RequestRecord(
        scheduled_ns=scheduled,
        arrivals_ns=tuple(stream.arrivals),
        ended_ns=time.monotonic_ns() - started,
        prompt_tokens=stream.usage.get("prompt_tokens", 0),
        output_tokens=stream.usage.get("completion_tokens", len(stream.arrivals)),
        error=error,
    )
