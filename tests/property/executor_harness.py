"""A task executor's machine with a fake engine, driven one event at a time, checked after each."""

from dataclasses import dataclass, field

from fake_engine import FakeEngine, expected

from tercet.jobs.job import Finish, Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Fact, RunStep, Send, Wake
from tercet.messages.events import PeerGone, PeerJoined, Received, StepDone, Woke
from tercet.messages.plan import StepCost, StepPlan
from tercet.messages.wire import CancelTask, SubmitTask, TaskUpdate
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor

FRONT = "front/0"
LATE_NS = 500_000_000
FREE = StepCost(base_ns=0.0, per_row_ns=0.0, per_logit_ns=0.0, per_pair_ns=0.0)


def task(number, prompt, *, new=4, generated=(), namespace="", **sampling):
    parameters = SamplingParameters(max_tokens=new, seed=1, **sampling)
    return Task(
        id=number,
        model="m",
        prompt=tuple(prompt),
        sampling=parameters,
        generated=tuple(generated),
        namespace=namespace,
    )


@dataclass
class Harness:
    num_blocks: int = 64
    context_max: int = 512
    cost: StepCost = FREE
    end_id: int | None = None
    scheduling: SchedulingConfig = field(default_factory=SchedulingConfig)
    config: TaskExecutorConfig = field(default_factory=TaskExecutorConfig)

    def __post_init__(self):
        self.machine = TaskExecutor(
            self.config,
            executor=1,
            capacity=Capacity(
                num_blocks=self.num_blocks,
                context_max=self.context_max,
                cost=self.cost,
                fingerprint="weights",
            ),
            scheduling=self.scheduling,
        )
        self.engine = FakeEngine(
            context_max=self.context_max, num_blocks=self.num_blocks, end_id=self.end_id
        )
        self.now = 0
        self.plans: list[tuple[StepPlan, int]] = []
        self.tasks: dict[int, Task] = {}
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, TaskUpdate] = {}
        self.updates: dict[int, list[TaskUpdate]] = {}
        self.started: list[int] = []
        self.facts: list[Fact] = []
        self.wakes: dict[str, int] = {}
        self.sends: list[Send] = []
        self.connected: dict[str, bool] = {}
        self.ring_late = self.wake

    def on(self, event):
        """Give the machine an event, take the effects, check everything."""
        effects = self.machine.on(event, self.now)
        for effect in effects:
            match effect:
                case RunStep():
                    for opening in effect.plan.opens:
                        assert opening.task.id in self.started, "a step holds a task unannounced"
                    self.plans.append((effect.plan, effect.predicted_ns))
                case Send():
                    self.sends.append(effect)
                    for update in effect.message.updates:
                        self._take(update)
                case Wake():
                    self.wakes[effect.key] = effect.at
                case Fact():
                    self.facts.append(effect)
        self.machine.check(whole=True)
        return effects

    def _take(self, update):
        number = update.task
        assert number not in self.ends, "words after the end"
        if update.started:
            self.started.append(number)
            self.tokens[number] = []  # a task begun anew tells all its tokens anew
        self.tokens.setdefault(number, []).extend(update.tokens)
        self.updates.setdefault(number, []).append(update)
        if update.finish is not None:
            self.ends[number] = update

    def submit(self, given, *, front=FRONT, epoch=1, **options):
        self.tasks[given.id] = given
        message = SubmitTask(task=given, reply=front, **options)
        return self.on(Received(sender=front, epoch=epoch, message=message))

    def cancel(self, number, *, front=FRONT, epoch=1):
        return self.on(Received(sender=front, epoch=epoch, message=CancelTask(task=number)))

    def joined(self, front=FRONT, epoch=1):
        return self.on(PeerJoined(peer=front, epoch=epoch))

    def gone(self, front=FRONT, epoch=1):
        return self.on(PeerGone(peer=front, epoch=epoch))

    def wake(self, key):
        """Let a wake come due."""
        self.now = max(self.now, self.wakes.pop(key))
        return self.on(Woke(key=key))

    def step(self):
        """Run the oldest plan and hand in its result.

        A wake may come late, as a busy loop's does, but not for ever.
        """
        plan, predicted_ns = self.plans.pop(0)
        self.now += predicted_ns
        for key in [key for key, at in self.wakes.items() if at + LATE_NS < self.now]:
            self.ring_late(key)
        return self.on(StepDone(result=self.engine.run(plan)))

    def drain(self, steps_max=10_000):
        """Step until nothing is under way; everything is then ended, no block is held."""
        for _ in range(steps_max):
            if not self.plans:
                break
            self.step()
        assert not self.plans, "work without end"
        assert not self.machine.scheduler.runs, "tasks without a step"
        assert self.machine.cache.stats().held == 0, "leaked blocks"

    def verify(self, number):
        """The task told exactly what it had to, once."""
        given = self.tasks[number]
        want = expected(given, context_max=self.context_max, end_id=self.end_id)
        assert self.tokens.get(number, []) == want
        by_stop = bool(want) and want[-1] == self.end_id
        assert self.ends[number].finish == (Finish.STOP if by_stop else Finish.LENGTH)

    def hit_of(self, number):
        told = [update.cached_tokens for update in self.updates[number]]
        values = [value for value in told if value is not None]
        assert len(values) == 1, "cached_tokens is told once"
        return values[0]
