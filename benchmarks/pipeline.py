"""A front and an executor in one process and one thread, on a device that takes no time.

    executor's machine -> engine (cost) -> machine -> bytes -> job executor -> exchange -> text
    |-------- benchmarks.rig ------------|  |----- what the front's process does, timed here ----|

Everything is the real thing except sockets and threads: messages are encoded and decoded as they
would be on the wire, requests come in through the ASGI application.
"""

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass

import uvloop

from benchmarks.models import opened
from benchmarks.rig import FRONT, Rig
from tercet.api.app import create_app
from tercet.api.config import ApiConfig
from tercet.api.service import ServedModel
from tercet.base.ids import Address, Epoch, ExecutorId, Ids
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.devices.choose import choose_device
from tercet.engine.build import build_engine, compile_model, kv_memory
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.messages.effects import Emit, Fact, Send
from tercet.messages.events import JobExecutorEvent, PeerJoined, Received
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady, Members, Role, SubmitTask, TaskUpdates
from tercet.observe.metrics import Metrics
from tercet.runtime.codec import decode_parcel, encode
from tercet.runtime.service import FrontService
from tercet.text.load import load_codec

EXECUTOR = Address("executor/0")
NO_COST = StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)
NUM_BLOCKS = 1 << 16
PROMPT = 16


@dataclass
class Split:
    """CPU seconds of each part, so that other programs do not count, and what came of it."""

    num_tokens: int = 0
    engine: float = 0.0
    task_executor: float = 0.0
    wire: float = 0.0
    job_executor: float = 0.0
    text: float = 0.0

    @property
    def total(self) -> float:
        return self.engine + self.task_executor + self.wire + self.job_executor + self.text


class _Front:
    """Plays the driver for a job executor: what `FrontService` takes for its host."""

    def __init__(self, machine: JobExecutor) -> None:
        self.machine = machine
        self.service: FrontService | None = None
        self.metrics = Metrics()
        self.outgoing: deque[bytes] = deque()

    async def asked_for(self, num_tasks: int) -> None:
        """Wait until so many tasks are on their way to the executor."""
        while len(self.outgoing) < num_tasks:  # noqa: ASYNC110  turns of the loop
            await asyncio.sleep(0)

    def deliver(self, event: JobExecutorEvent) -> None:
        """Give the machine an event and carry out what it wants."""
        for effect in self.machine.on(event, time.monotonic_ns()):
            if isinstance(effect, Emit) and self.service is not None:
                self.service.emit(effect)
            elif isinstance(effect, Send):
                self.outgoing.append(encode(effect.message))
            elif isinstance(effect, Fact):
                self.metrics.on_fact(effect)


def run(num_jobs: int, max_tokens: int) -> Split:
    """Have so many jobs answered, each as long as that; times of everything after the prompts."""
    split: Split = uvloop.run(_run(num_jobs, max_tokens))
    return split


async def _run(num_jobs: int, max_tokens: int) -> Split:
    front, rig = _front(), _rig(num_jobs)
    served = _served()
    service = FrontService(Ids(Epoch(1)), front.machine, ClusterManager(ClusterManagerConfig()))
    service.served = (served,)
    service.host = front  # type: ignore[assignment]
    front.service = service
    app = create_app(service, ApiConfig(), metrics=front.metrics)
    clients = [asyncio.create_task(_client(app, seed, max_tokens)) for seed in range(num_jobs)]
    await front.asked_for(num_jobs)
    for payload in front.outgoing:
        message = decode_parcel(payload)
        if isinstance(message, SubmitTask):
            rig.take(message)
    rig.spent.engine = rig.spent.machine = 0.0
    split = Split()
    while not all(client.done() for client in clients):
        await _step(front, rig, split)
    split.engine, split.task_executor = rig.spent.engine, rig.spent.machine
    for client in clients:
        client.result()
    return split


async def _step(front: _Front, rig: Rig, split: Split) -> None:
    for message in rig.step():
        began = time.thread_time()
        parcel = decode_parcel(encode(message))
        decoded = time.thread_time()
        if isinstance(parcel, TaskUpdates):
            front.deliver(Received(sender=EXECUTOR, epoch=Epoch(1), message=parcel))
        split.wire += decoded - began
        split.job_executor += time.thread_time() - decoded
        split.num_tokens += sum(len(update.tokens) for update in message.updates)
    began = time.thread_time()
    await asyncio.sleep(0)
    split.text += time.thread_time() - began


async def _client(app: object, seed: int, max_tokens: int) -> None:
    body = json.dumps(
        {
            "model": "bench",
            "prompt": [1000 + seed * 101 + place for place in range(PROMPT)],
            "max_tokens": max_tokens,
            "ignore_eos": True,
        }
    ).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "root_path": "",
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json")],
    }
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    statuses = []
    over = asyncio.Event()

    async def receive() -> dict[str, object]:
        if waiting:
            return waiting.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        if "status" in message:
            statuses.append(message["status"])

    await app(scope, receive, send)  # type: ignore[operator]
    over.set()
    if statuses != [200]:
        raise RuntimeError(f"an answer with status {statuses}")


def _front() -> _Front:
    machine = JobExecutor(JobExecutorConfig(), address=FRONT, rand=Rand(1))
    front = _Front(machine)
    ready = ExecutorReady(
        executor=ExecutorId(0),
        epoch=Epoch(1),
        pid=1,
        role=Role.COLOCATED,
        model="bench",
        cost=NO_COST,
        num_blocks=NUM_BLOCKS,
        context_max=8192,
    )
    front.deliver(PeerJoined(peer=Address("cluster"), epoch=Epoch(1)))
    members = Members(version=1, executors=(ready,), settled=True)
    front.deliver(Received(sender=Address("cluster"), epoch=Epoch(1), message=members))
    front.deliver(PeerJoined(peer=EXECUTOR, epoch=Epoch(1)))
    return front


def _rig(num_jobs: int) -> Rig:
    model = opened()
    executable = compile_model(model, choose_device("cost"))
    memory = kv_memory(executable, NUM_BLOCKS)
    engine = build_engine(executable, shape=model.shape, memory=memory, max_slots=num_jobs)
    return Rig(engine, NO_COST, memory.layout.num_blocks)


def _served() -> ServedModel:
    model = opened()
    return ServedModel(
        names=("bench",),
        created=0,
        context_max=model.shape.context_max,
        vocab=model.shape.vocab,
        codec=load_codec(model.tokenizer_source),
        template=None,
    )
