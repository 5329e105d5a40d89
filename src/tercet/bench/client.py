"""Send a workload to a server and record what came back, streaming, with httpx."""

import asyncio
import json
import time
from collections.abc import Callable

import httpx
from msgspec import Struct

from tercet.base.errors import Invalid
from tercet.bench.records import RequestRecord
from tercet.bench.workload import BenchRequest

Progress = Callable[[int], object]


class Target(Struct, frozen=True, kw_only=True):
    """The server under load."""

    url: str
    model: str
    api_key: str | None = None
    timeout_s: float = 600.0
    ignore_eos: bool = True
    """Ask for exactly `max_tokens` tokens, so that runs compare."""
    temperature: float = 0.0


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
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    gate = asyncio.Semaphore(concurrency) if concurrency else None
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=512)
    started = time.monotonic_ns()
    async with httpx.AsyncClient(
        base_url=target.url.rstrip("/"),
        headers=headers,
        limits=limits,
        timeout=target.timeout_s,
        trust_env=False,
    ) as client:

        async def one(request: BenchRequest) -> RequestRecord:
            if request.at_ns is not None:
                await asyncio.sleep((request.at_ns - time.monotonic_ns() + started) / 1e9)
            if gate is None:
                record = await _send(client, target, request, started=started)
            else:
                async with gate:
                    record = await _send(client, target, request, started=started)
            progress(1)
            return record

        records = await asyncio.gather(*(one(request) for request in requests))
    return list(records), time.monotonic_ns() - started


async def served_model(url: str, api_key: str | None) -> str:
    """The id of the first model that the server lists; `Invalid` if it cannot be reached."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            answer = await client.get(f"{url.rstrip('/')}/v1/models", headers=headers)
            answer.raise_for_status()
            return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
        raise Invalid(f"no server that lists its models at {url}: {error}") from error


async def _send(
    client: httpx.AsyncClient,
    target: Target,
    request: BenchRequest,
    *,
    started: int,
) -> RequestRecord:
    scheduled = time.monotonic_ns() - started
    if request.at_ns is not None:
        scheduled = min(scheduled, request.at_ns)
    body = {
        "model": target.model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": target.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.ignore_eos:
        body["ignore_eos"] = True
    arrivals: list[int] = []
    usage: dict[str, int] = {}
    error: str | None = None
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                error = f"HTTP {answer.status_code}"
            else:
                error = await _read(answer, arrivals=arrivals, usage=usage, started=started)
    except httpx.HTTPError as problem:
        error = type(problem).__name__
    return RequestRecord(
        scheduled_ns=scheduled,
        arrivals_ns=tuple(arrivals),
        ended_ns=time.monotonic_ns() - started,
        prompt_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", len(arrivals)),
        error=error,
    )


async def _read(
    answer: httpx.Response,
    *,
    arrivals: list[int],
    usage: dict[str, int],
    started: int,
) -> str | None:
    """Read the event stream to its end; the reason if it did not end well."""
    pending = b""
    finished = False
    async for data in answer.aiter_bytes():
        now = time.monotonic_ns() - started
        *events, pending = (pending + data).split(b"\n\n")
        for event in events:
            if not event.startswith(b"data: "):
                continue
            payload = event[6:]
            if payload == b"[DONE]":
                return None if finished else "no finish reason"
            chunk = json.loads(payload)
            if "error" in chunk:
                return f"error in stream: {chunk['error'].get('code')}"
            usage.update(chunk.get("usage") or {})
            for choice in chunk["choices"]:
                finished = finished or choice.get("finish_reason") is not None
                if choice.get("text") or choice.get("token_ids"):
                    arrivals.append(now)
    return "stream was cut"
