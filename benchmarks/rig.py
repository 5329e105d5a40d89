"""A task executor without its process: the machine and the engine, one step after the other.

Under the real driver the machine plans while the engine's thread computes; here both take turns, so
what is measured is never better than what serves.
"""

import time
from collections import deque
from dataclasses import dataclass, field

from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.base.model import ModelShape
from tercet.engine.engine import Engine
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Effect, RunStep, Send, Wake
from tercet.messages.events import Received, StepDone, TaskExecutorEvent, Woke
from tercet.messages.plan import StepCost
from tercet.messages.wire import CancelTask, Load, SubmitTask, TaskUpdates
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor

FRONT = Address("front/0")


@dataclass
class Spent:
    """CPU seconds of this thread in the parts of an executor."""

    machine: float = 0.0
    engine: float = 0.0


@dataclass
class Rig:
    """One executor's machine on one engine."""

    engine: Engine
    cost: StepCost
    num_blocks: int
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self.machine = TaskExecutor(
            TaskExecutorConfig(),
            executor=ExecutorId(0),
            capacity=Capacity(
                num_blocks=self.num_blocks,
                context_max=self.shape.context_max,
                cost=self.cost,
                fingerprint="bench",
            ),
            # Every token is computed: texts of a benchmark repeat, and guesses would flatter.
            scheduling=SchedulingConfig(max_slots=self.engine.slots.max_slots, speculation="off"),
        )
        self._steps: deque[RunStep] = deque()
        self._wakes: dict[str, int] = {}
        self._told: list[TaskUpdates] = []

    @property
    def shape(self) -> ModelShape:
        return self.engine.shape

    def submit(self, number: int, prompt: tuple[int, ...], max_tokens: int) -> None:
        """Queue a greedy task that takes all its tokens."""
        sampling = SamplingParameters(
            max_tokens=max_tokens, temperature=0.0, seed=number, ignore_eos=True
        )
        task = Task(id=TaskId(number), model="m", prompt=prompt, sampling=sampling)
        self.take(SubmitTask(task=task, reply=FRONT))

    def cancel(self, number: int) -> None:
        """Give up a task."""
        self.take(CancelTask(task=TaskId(number)))

    def take(self, message: SubmitTask | CancelTask) -> None:
        """Give the machine a message of a front."""
        self._event(Received(sender=FRONT, epoch=Epoch(1), message=message))

    def step(self) -> list[TaskUpdates]:
        """Run one step; what the machine told its front meanwhile. Empty: nothing to do."""
        if not self._steps and self._wakes:
            key = min(self._wakes, key=lambda one: self._wakes[one])
            self._event(Woke(key=key), not_before=self._wakes.pop(key))
        if self._steps:
            plan = self._steps.popleft().plan
            began = time.thread_time()
            result = self.engine.run(plan)
            self.spent.engine += time.thread_time() - began
            self._event(StepDone(result=result))
        told, self._told = self._told, []
        return told

    @property
    def load(self) -> Load:
        return self.machine.load()

    def _event(self, event: TaskExecutorEvent, not_before: int = 0) -> None:
        began = time.thread_time()
        now = max(time.monotonic_ns(), not_before)
        effects = self.machine.on(event, now)
        self.spent.machine += time.thread_time() - began
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, RunStep):
            self._steps.append(effect)
        elif isinstance(effect, Wake):
            self._wakes[effect.key] = effect.at
        elif isinstance(effect, Send) and isinstance(effect.message, TaskUpdates):
            self._told.append(effect.message)
