"""A job executor with executors of paper: what it sends and emits is returned, nothing answers."""

from tercet.base.ids import Address, Epoch, ExecutorId, Ids, TaskId
from tercet.base.rand import Rand
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.jobs.job import Finish, Job, TaskOutput
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Effect, Emit, Send, Wake
from tercet.messages.events import JobExecutorEvent, JobSubmitted, PeerGone, PeerJoined, Received
from tercet.messages.plan import StepCost
from tercet.messages.wire import (
    CancelTask,
    ExecutorReady,
    Load,
    Members,
    Role,
    SubmitTask,
    TaskUpdate,
    TaskUpdates,
)

SECOND = 1_000_000_000
COST = StepCost(base_ns=1.0, per_row_ns=1.0, per_logit_ns=1.0, per_pair_ns=1.0)


def ready(executor: int, model: str = "m", role: Role = Role.COLOCATED) -> ExecutorReady:
    return ExecutorReady(
        executor=ExecutorId(executor),
        epoch=Epoch(100 + executor),
        pid=1,
        role=role,
        model=model,
        cost=COST,
        num_blocks=64,
        context_max=4096,
    )


class Front:
    """The machine, with short words for what happens to it; `check()` after every event."""

    def __init__(self, config: JobExecutorConfig | None = None, *, executors: int = 0) -> None:
        self.machine = JobExecutor(
            config or JobExecutorConfig(), address=Address("front/0"), rand=Rand(7)
        )
        self.ids = Ids(Epoch(1))
        self.now = SECOND
        self.version = 0
        for number in range(executors):
            self.join(number)
        if executors:
            self.members(*range(executors))

    def on(self, event: JobExecutorEvent) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.machine.check()
        return effects

    def job(self, *prompts: tuple[int, ...], n: int = 1, **sampling: int) -> Job:
        parameters = SamplingParameters(**{"max_tokens": 8, **sampling})
        return Job(
            id=self.ids.job(), model="m", prompts=prompts or ((1, 2),), sampling=parameters, n=n
        )

    def submit(self, job: Job | None = None) -> list[Effect]:
        return self.on(JobSubmitted(job=job or self.job()))

    def join(self, executor: int, epoch: int | None = None) -> list[Effect]:
        epoch = 100 + executor if epoch is None else epoch
        return self.on(PeerJoined(peer=Address(f"executor/{executor}"), epoch=Epoch(epoch)))

    def gone(self, executor: int) -> list[Effect]:
        return self.on(PeerGone(peer=Address(f"executor/{executor}"), epoch=Epoch(100 + executor)))

    def members(self, *executors: int, settled: bool = True, model: str = "m") -> list[Effect]:
        self.version += 1
        named = tuple(ready(number, model) for number in executors)
        message = Members(version=self.version, executors=named, settled=settled)
        return self.on(Received(sender=Address("cluster"), epoch=Epoch(3), message=message))

    def say(self, executor: int, *updates: TaskUpdate) -> list[Effect]:
        message = TaskUpdates(executor=ExecutorId(executor), updates=updates, load=Load())
        sender = Address(f"executor/{executor}")
        return self.on(Received(sender=sender, epoch=Epoch(100 + executor), message=message))


def placed(effects: list[Effect]) -> list[tuple[str, SubmitTask]]:
    return [
        (e.to, e.message)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, SubmitTask)
    ]


def cancelled(effects: list[Effect]) -> list[tuple[str, TaskId]]:
    return [
        (e.to, e.message.task)
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, CancelTask)
    ]


def outputs(effects: list[Effect]) -> list[TaskOutput]:
    return [e.output for e in effects if isinstance(e, Emit)]


def ends(effects: list[Effect]) -> list[Finish]:
    return [output.finish for output in outputs(effects) if output.finish is not None]


def wakes(effects: list[Effect]) -> dict[str, int]:
    return {e.key: e.at for e in effects if isinstance(e, Wake)}
