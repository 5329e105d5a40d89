"""Fake task executors and the connections to them: what the job executor is tried against.

A fake computes tokens that are a function of (seed, choice, position), so that any stream can be
checked piece by piece. A connection is a queue in each direction; breaking it loses what is under
way, and the executor lives on with what it had, or dies.
"""

from collections import deque
from dataclasses import dataclass, field

from tercet.base.ids import (
    Address,
    Epoch,
    ExecutorId,
    JobId,
    TaskId,
    index_of,
    job_of,
    task_id,
)
from tercet.base.rand import Rand, mix
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.jobs.job import Finish, Job, Task, TaskOutput
from tercet.messages.effects import Effect, Emit, Send, Wake
from tercet.messages.events import JobExecutorEvent, PeerGone, PeerJoined, Received, Woke
from tercet.messages.plan import StepCost
from tercet.messages.wire import (
    CancelTask,
    ExecutorReady,
    Load,
    Members,
    Message,
    Role,
    SubmitTask,
    TaskUpdate,
    TaskUpdates,
)

COST = StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0)
FRONT = Address("front/0")


def token_at(seed: int, choice: int, position: int) -> int:
    return mix(mix(seed ^ choice) ^ position) % 50_000


def ready(executor: int, model: str = "m", role: Role = Role.COLOCATED) -> ExecutorReady:
    return ExecutorReady(
        executor=ExecutorId(executor),
        epoch=Epoch(100 + executor),
        pid=1000 + executor,
        role=role,
        model=model,
        cost=COST,
        num_blocks=64,
        context_max=4096,
    )


@dataclass
class Run:
    task: Task
    alone: bool
    started: bool = False
    gained: int = 0


@dataclass
class FakeExecutor:
    """Keeps the contract of a task executor, in the smallest way."""

    executor: int
    runs: dict[TaskId, Run] = field(default_factory=dict)
    alive: bool = True
    connected: bool = False
    inbox: deque[Message] = field(default_factory=deque)
    outbox: deque[TaskUpdates] = field(default_factory=deque)
    slots: int = 8
    role: Role = Role.COLOCATED
    poisons: tuple[tuple[int, ...], ...] = ()
    """A prompt that kills whoever computes it."""

    @property
    def address(self) -> Address:
        return Address(f"executor/{self.executor}")

    @property
    def epoch(self) -> Epoch:
        return Epoch(100 + self.executor)

    def hear(self) -> bool:
        """Read one message."""
        if not self.inbox:
            return False
        match self.inbox.popleft():
            case SubmitTask(task=task, alone=alone):
                assert task.sampling.seed is not None
                self.runs.setdefault(task.id, Run(task, alone))
            case CancelTask(task=number):
                self.runs.pop(number, None)
        return True

    def step(self) -> bool:
        """Run one step: a suspect alone, else the oldest that fit. False where there is no work."""
        if not self.runs:
            return False
        solo = [run for run in self.runs.values() if run.alone and not run.gained]
        chosen = solo[:1] or list(self.runs.values())[: self.slots]
        begun = [TaskUpdate(run.task.id, started=True) for run in chosen if not run.started]
        if begun:
            self._say(begun)
        for run in chosen:
            run.started = True
        if any(run.task.prompt in self.poisons for run in chosen):
            self.alive = False
            return True
        self._say([self._advance(run) for run in chosen])
        return True

    def _advance(self, run: Run) -> TaskUpdate:
        task = run.task
        assert task.sampling.seed is not None
        position = len(task.generated) + run.gained
        token = token_at(task.sampling.seed, task.choice, position)
        run.gained += 1
        finish = Finish.LENGTH if position + 1 >= task.sampling.max_tokens else None
        if finish is not None:
            del self.runs[task.id]
        return TaskUpdate(task.id, tokens=(token,), finish=finish)

    def _say(self, updates: list[TaskUpdate]) -> None:
        load = Load(waiting=0, running=len(self.runs))
        message = TaskUpdates(executor=ExecutorId(self.executor), updates=tuple(updates), load=load)
        if self.connected:
            self.outbox.append(message)


@dataclass
class Stream:
    """What a client has of one task."""

    max_tokens: int
    seed: int | None
    choice: int
    tokens: list[int] = field(default_factory=list)
    ends: list[TaskOutput] = field(default_factory=list)


class House:
    """A job executor, its executors, and a client who checks everything that he is told."""

    def __init__(self, config: JobExecutorConfig | None = None, *, seed: int = 1) -> None:
        self.machine = JobExecutor(
            config or JobExecutorConfig(), address=FRONT, rand=Rand(seed, "front")
        )
        self.now = 0
        self.executors: dict[int, FakeExecutor] = {}
        self.streams: dict[TaskId, Stream] = {}
        self.wakes: dict[str, int] = {}
        self.version = 0
        self.roles: dict[Address, Role] = {}
        """Of the executors that the last list named."""
        self.renewed: FakeExecutor | None = None
        """Its old connection ends before the new one counts."""
        self.sizes: dict[JobId, int] = {}
        """How many tasks each job has: an alias is a task's index plus a multiple of it."""
        self.num_deaths = 0

    def give(self, event: JobExecutorEvent) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.machine.check()
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self._sent(to, message)
                case Emit(output=output):
                    self._emitted(output)
                case Wake(key=key, at=at):
                    self.wakes[key] = at
        return effects

    def expect(self, job: Job) -> None:
        """Prepare to check the streams of a job that is about to be submitted."""
        self.sizes[job.id] = job.num_tasks
        for index in range(job.num_tasks):
            self.streams[TaskId(job.id << 12 | index)] = Stream(
                job.sampling.max_tokens, job.sampling.seed, index % job.n
            )

    def join(self, executor: FakeExecutor) -> None:
        executor.connected = True
        executor.inbox.clear()
        executor.outbox.clear()
        self.executors[executor.executor] = executor
        self.renewed = executor
        self.give(PeerJoined(peer=executor.address, epoch=executor.epoch))
        self.renewed = None

    def cut(self, executor: FakeExecutor) -> None:
        executor.connected = False
        executor.inbox.clear()
        executor.outbox.clear()
        self.give(PeerGone(peer=executor.address, epoch=executor.epoch))

    def bury(self, executor: FakeExecutor) -> None:
        executor.alive = False
        self.num_deaths += 1
        del self.executors[executor.executor]
        if executor.connected:
            self.cut(executor)

    def members(self, *, settled: bool = True, without: tuple[int, ...] = ()) -> None:
        self.version += 1
        named = tuple(
            ready(n, role=e.role) for n, e in self.executors.items() if e.alive and n not in without
        )
        self.roles = {Address(f"executor/{one.executor}"): one.role for one in named}
        message = Members(version=self.version, executors=named, settled=settled)
        self.give(Received(sender=Address("cluster"), epoch=Epoch(9), message=message))

    def listen(self, executor: FakeExecutor) -> bool:
        """Deliver one message of an executor to the job executor."""
        if not executor.outbox:
            return False
        message = executor.outbox.popleft()
        self.give(Received(sender=executor.address, epoch=executor.epoch, message=message))
        return True

    def ring(self) -> None:
        """Let every timer that is due come."""
        for key, at in list(self.wakes.items()):
            if at <= self.now and self.wakes.get(key) == at:
                del self.wakes[key]
                self.give(Woke(key=key))

    def work(self) -> bool:
        """Let every executor hear, step and be heard once; the dead are buried."""
        moved = False
        for executor in list(self.executors.values()):
            while executor.hear():
                moved = True
            moved = executor.step() or moved
            while self.listen(executor):
                moved = True
            if not executor.alive:
                self.bury(executor)
                self.members()
                moved = True
        return moved

    def _sent(self, to: Address, message: Message) -> None:
        executor = self.executors.get(int(to.removeprefix("executor/")))
        if isinstance(message, SubmitTask):
            assert executor is not None, f"a task was sent to {to}, which is not connected"
            assert executor.connected, f"a task was sent to {to}, which is not connected"
            self._submitted(message.task)
            self._cast(to, message)
        if executor is not None and executor.connected:
            executor.inbox.append(message)

    def _cast(self, to: Address, message: SubmitTask) -> None:
        """Whole tasks go to prefill executors only where nobody else is; prompts to nobody else."""
        connected = [e for e in self.executors.values() if e.connected and e.address in self.roles]
        if self.roles.get(to) is Role.PREFILL:
            others = [
                e
                for e in connected
                if self.roles[e.address] is not Role.PREFILL and e is not self.renewed
            ]
            assert not others, f"{to} got a task though {others[0].address} could take it"
        if message.prefill is not None:
            assert self.roles.get(to) is Role.DECODE, "only who decodes has its prompt computed"
            assert self.roles.get(message.prefill) is Role.PREFILL, "no prefill executor"
            assert not message.alone, "a suspect's prompt would reach another executor"
            assert any(e.address == message.prefill for e in connected), "it is not connected"

    def _submitted(self, task: Task) -> None:
        job = job_of(task.id)
        stream = self.streams[task_id(job, index_of(task.id) % self.sizes[job])]
        assert not stream.ends, "an ended task was placed"
        assert task.sampling.seed is not None
        assert stream.seed in {None, task.sampling.seed}, "a task changed its seed"
        stream.seed = task.sampling.seed
        assert task.choice == stream.choice
        assert list(task.generated) == stream.tokens, "not placed with what the client has"

    def _emitted(self, output: TaskOutput) -> None:
        stream = self.streams[output.task]
        assert not stream.ends, f"task {output.task} was told of after its end"
        stream.tokens.extend(output.tokens)
        if output.finish is not None:
            stream.ends.append(output)
        if stream.tokens:
            assert stream.seed is not None, "tokens of a task that was never placed"
            expected = [
                token_at(stream.seed, stream.choice, at) for at in range(len(stream.tokens))
            ]
            assert stream.tokens == expected, f"task {output.task}: a gap or a repetition"
        assert len(stream.tokens) <= stream.max_tokens
