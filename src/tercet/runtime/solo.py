"""A model that answers within this process: the machines, engine and text of a tree, and no tree.

    fields --checks of the HTTP API--> job --> JobExecutor --> TaskExecutor --> engine
    text   <------- choice <--------- piece <-----'    (`inline` drives both, step by step)

What is refused is refused in the API's words, and what is answered is what a server answers, bit
for bit; nothing is forked, measured or listened to. For commands that end soon after they began.
"""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from tercet.api.ask import Ask
from tercet.api.chat import read_chat
from tercet.api.choice import Choice, Delta, open_choices
from tercet.api.completions import read_completion
from tercet.api.desk import Desk
from tercet.api.fields import CHAT, COMPLETIONS, Fields
from tercet.api.outcomes import ended
from tercet.api.service import ServedModel
from tercet.api.ticket import Ticket
from tercet.api.tokenizing import Tokenizing
from tercet.base.errors import Invalid, must
from tercet.base.ids import BLOCK_TOKENS, Address, ExecutorId, Ids, index_of, task_id
from tercet.devices.contract import Executable
from tercet.engine.build import build_engine, compile_model, kv_block_bytes, kv_memory
from tercet.engine.engine import Engine
from tercet.jobs.job import Finish, TaskOutput
from tercet.messages.events import JobCancelled, JobSubmitted, Received, StopFound
from tercet.messages.plan import StepCost
from tercet.messages.wire import ExecutorReady, Members, Role
from tercet.models.opened import StageProgress
from tercet.runtime.config import TreeConfig
from tercet.runtime.cores import usable_cores
from tercet.runtime.executor_machine import MakeTaskExecutor
from tercet.runtime.inline import EPOCH, Inline, Recording
from tercet.runtime.job_machine import MakeJobExecutor
from tercet.runtime.memory_budget import free_memory, plan_memory
from tercet.runtime.opening import Opened, open_configured
from tercet.runtime.served import quick_codec, serve_model
from tercet.task_executor.config import Capacity

FRONT = Address("front/0")
CLUSTER = Address("cluster")
EXECUTOR = ExecutorId(0)
EXECUTOR_ADDRESS = Address("executor/0")
MEMORY_BYTES_PER_S = 10e9
"""What weights are read at, for a first guess of a step's cost; steps correct it (`pace`)."""
ROW_SHARE = 1 / 16
"""Of that guess: what a row more costs."""
PAIR_SHARE = 1 / 16384
"""And a row more that looks at one token."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a solo is made of."""

    config: TreeConfig
    served: ServedModel
    engine: Engine
    capacity: Capacity


class Solo:
    """One conversation at a time; not for two threads. `close` it when the last answer is had."""

    def __init__(self, parts: Parts) -> None:
        self.served = parts.served
        self._engine = parts.engine
        self._ids = Ids(EPOCH)
        self._desk = Desk(parts.config.api, Tokenizing(parts.config.api), self._ids.job)
        self._pieces: list[TaskOutput] = []
        self._driver = Inline(
            parts.engine.run, engine_of=EXECUTOR_ADDRESS, emit=self._pieces.append
        )
        self._add_machines(parts)

    def answer(self, fields: Mapping[str, object], *, chat: bool) -> Iterator[str]:
        """Yield pieces of text as they come, of a request with these fields (docs/api.md).

        `Invalid` says what the API would have refused, or why the answer ended early. An iterator
        that is closed before its end leaves nothing running.
        """
        ask = self._read(fields, chat=chat)
        choices = open_choices(ask)
        self._driver.deliver(FRONT, JobSubmitted(job=ask.job))
        try:
            while any(choice.finish is None for choice in choices):
                if not self._pieces:
                    must(self._driver.turn(), "an answer that nobody computes")
                    continue
                yield from self._texts(ask, choices)
        finally:
            self._end(ask)

    def close(self) -> None:
        """Finish what was recorded."""
        self._driver.close()

    def _add_machines(self, parts: Parts) -> None:
        config, capacity = parts.config, parts.capacity
        make_jobs = MakeJobExecutor(
            config=config.job_executor,
            address=FRONT,
            seed=int.from_bytes(os.urandom(8), "little") >> 1,
        )
        make_tasks = MakeTaskExecutor(
            config=config.task_executor,
            executor=EXECUTOR,
            capacity=capacity,
            scheduling=replace(config.scheduling, max_slots=self._engine.slots.max_slots),
        )
        makes = {FRONT: make_jobs, EXECUTOR_ADDRESS: make_tasks}
        recordings = {address: _recording(config, address, make) for address, make in makes.items()}
        self._driver.add(FRONT, make_jobs.make(), recording=recordings[FRONT])
        tasks = make_tasks.make()
        self._driver.add(EXECUTOR_ADDRESS, tasks, recording=recordings[EXECUTOR_ADDRESS])
        ready = ExecutorReady(
            executor=EXECUTOR,
            epoch=EPOCH,
            pid=os.getpid(),
            role=Role.COLOCATED,
            model=self.served.names[0],
            cost=capacity.cost,
            num_blocks=capacity.num_blocks,
            context_max=capacity.context_max,
        )
        members = Members(version=1, executors=(ready,), settled=True)
        self._driver.deliver(FRONT, Received(sender=CLUSTER, epoch=EPOCH, message=members))

    def _read(self, fields: Mapping[str, object], *, chat: bool) -> Ask:
        table, read = (CHAT, read_chat) if chat else (COMPLETIONS, read_completion)
        given = Fields({"model": self.served.names[0], **fields}, table)
        ticket = Ticket(request="", nonce="", tenant="")
        return _done(read(given, self.served, desk=self._desk, ticket=ticket))

    def _texts(self, ask: Ask, choices: list[Choice]) -> Iterator[str]:
        pieces = list(self._pieces)
        self._pieces.clear()
        for piece in pieces:
            choice = choices[index_of(piece.task)]
            if choice.finish is not None:
                continue  # overrun after a stop string was found
            if piece.finish is Finish.FAILED or piece.finish is Finish.CANCELLED:
                outcome = ended(piece)
                raise Invalid(outcome.sentence, code=outcome.code)
            delta = Delta(choice.index)
            choice.push(piece, delta)
            if choice.finish is not None and piece.finish is None:
                found = task_id(ask.job.id, choice.index)
                self._driver.deliver(FRONT, StopFound(task=found))
            if text := delta.text:
                yield text

    def _end(self, ask: Ask) -> None:
        """Leave nothing of a job: what runs is cancelled, a step that was planned is done."""
        self._driver.deliver(FRONT, JobCancelled(job=ask.job.id))
        while self._driver.turn():
            pass
        self._pieces.clear()


def open_solo(
    config: TreeConfig,
    *,
    chats: bool,
    progress: StageProgress | None = None,
    over: Callable[[str], None] = lambda _: None,
) -> Solo:
    """Open the model, whatever is missing fetched and built, ready for the first prompt.

    `Invalid` says in a sentence what cannot be served. `over` is called with the name of each
    stage as it ends.
    """
    threads = config.runtime.threads or usable_cores()
    opened = open_configured(config, threads=threads, progress=progress)
    over("open")
    executable = compile_model(opened.model, opened.device, opened.options)
    over("compile")
    served = serve_model(config, opened.model, quick_codec(config, opened.model), chats=chats)
    over("tokenizer")
    capacity = _capacity(config, opened, executable, context_max=served.context_max)
    engine = build_engine(
        executable,
        shape=opened.model.shape,
        memory=kv_memory(executable, capacity.num_blocks, populate=False),
        max_slots=1,
    )
    if opened.device.name == "reference":
        from tercet.engine.blas import BlasThreads

        BlasThreads().use(threads)
    if config.runtime.faults:
        from tercet.runtime.faulty import FaultyExecutable, faults_of

        faults = faults_of(config.runtime.faults, EXECUTOR)
        engine.executable = FaultyExecutable(engine.executable, faults)
    solo = Solo(Parts(config, served, engine, capacity))
    over("memory and machines")
    return solo


def _capacity(
    config: TreeConfig, opened: Opened, executable: Executable, *, context_max: int
) -> Capacity:
    """Room for one whole context; its memory is taken as the context grows."""
    budget = plan_memory(
        block_bytes=kv_block_bytes(executable),
        context_max=context_max,
        replicas=1,
        fraction=config.runtime.memory_fraction,
        asked_bytes=config.runtime.kv_cache_memory_bytes,
        free_bytes=free_memory(),
    )
    one_context = -(-context_max // BLOCK_TOKENS)
    return Capacity(
        num_blocks=min(budget.num_blocks, one_context + 1),
        context_max=context_max,
        cost=_guess(opened),
        fingerprint=f"{opened.model.fingerprint} {opened.device.numerics_id()}",
    )


def _guess(opened: Opened) -> StepCost:
    """What a step might cost: reading all weights, and little more. To measure takes as long as an
    answer; the guess only sets how long prompts are cut, and gets better with every step.
    """
    image = opened.model.image
    size = 1 if image is None else image.header.size
    base_ns = size / MEMORY_BYTES_PER_S * 1e9
    return StepCost(
        base_ns=base_ns,
        per_row_ns=base_ns * ROW_SHARE,
        per_logit_ns=base_ns * ROW_SHARE,
        per_pair_ns=base_ns * PAIR_SHARE,
    )


def _recording(config: TreeConfig, address: Address, make: Struct) -> Recording | None:
    if config.runtime.record is None:
        return None
    from tercet.runtime.codec import encode
    from tercet.runtime.recording import SUFFIX, Recorder

    name = f"{address.replace('/', '-')}.{EPOCH}{SUFFIX}"
    return Recorder(Path(config.runtime.record) / name, encode(make))


def _done(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nobody: all its work is done in this thread."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a coroutine waits in a process without a loop")
