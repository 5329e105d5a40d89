"""The task executor and its scheduler under any order of submits, cancels, results and peers.

After every event the machine checks itself wholly, and the fake engine checks every plan and every
cached token. At quiescence every block is free or cached, and every task that nobody cancelled has
exactly the tokens that it must have.
"""

from executor_harness import Harness, task
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tercet.jobs.job import Finish
from tercet.messages.plan import StepCost
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import TaskExecutorConfig

FRONTS = ("front/0", "front/1")


class ExecutorRules(RuleBasedStateMachine):
    """Random events in random order; the harness checks after each."""

    @initialize(
        num_blocks=st.integers(4, 24),
        slots=st.integers(1, 6),
        row_ns=st.sampled_from([0.0, 1e5, 3e7]),
        passes=st.integers(0, 3),
        rows=st.sampled_from([8, 40, 400]),
        step_ns=st.sampled_from([5e8, 7e7]),
    )
    def begin(self, num_blocks, slots, row_ns, passes, rows, step_ns):
        cost = StepCost(base_ns=1e5, per_row_ns=row_ns, per_logit_ns=1e3, per_pair_ns=row_ns / 99)
        self.harness = Harness(
            num_blocks=num_blocks,
            context_max=min(16 * num_blocks, 150),
            cost=cost,
            end_id=7,
            scheduling=SchedulingConfig(
                max_slots=slots,
                max_rows=max(rows, slots),
                max_passes=passes,
                max_waiting=12,
                step_ns_max=int(step_ns),
            ),
            config=TaskExecutorConfig(front_grace_ns=10**9),
        )
        self.harness.ring_late = self._ring
        self.epochs = dict.fromkeys(FRONTS, 1)
        self.away = dict.fromkeys(FRONTS, False)
        self.owner = {}
        self.dropped = {}
        self.number = 0

    @rule(
        many=st.integers(1, 3),
        base=st.integers(1, 60),
        tails=st.lists(st.lists(st.integers(0, 2), max_size=20), min_size=3, max_size=3),
        new=st.integers(1, 50),
        front=st.sampled_from(FRONTS),
        kind=st.sampled_from(["plain", "plain", "plain", "alone", "sibling"]),
        namespace=st.sampled_from(["", "", "tenant"]),
        given=st.integers(0, 8),
    )
    def submit(self, many, base, tails, new, front, kind, namespace, given):
        if self.away[front]:
            return
        first = self.number + 1
        for tail in tails[:many]:
            self.number += 1
            prompt = ([1] * base + tail)[: self.harness.context_max - 1]
            fits = given < min(new, self.harness.context_max - len(prompt))
            self.owner[self.number] = front
            self.harness.submit(
                task(
                    self.number,
                    prompt,
                    new=new,
                    generated=[5] * given if fits else [],
                    namespace=namespace,
                ),
                front=front,
                epoch=self.epochs[front],
                alone=kind == "alone",
                leader=first if kind == "sibling" and first != self.number else None,
            )

    @precondition(lambda self: self.harness.plans)
    @rule(times=st.integers(1, 12))
    def step(self, times):
        for _ in range(times):
            if self.harness.plans:
                self.harness.step()

    @precondition(lambda self: self.number)
    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick):
        number = pick % (self.number + 1)
        self.dropped[number] = True
        front = self.owner.get(number, FRONTS[0])
        self.harness.cancel(number, front=front, epoch=self.epochs[front])

    @precondition(lambda self: self.number)
    @rule(pick=st.integers(0, 1000))
    def repeat(self, pick):
        """The same words twice change nothing."""
        number = pick % self.number + 1
        if number not in self.harness.machine.scheduler.runs:
            return
        front = self.owner[number]
        self.harness.submit(self.harness.tasks[number], front=front, epoch=self.epochs[front])

    @rule(
        front=st.sampled_from(FRONTS),
        what=st.sampled_from(["back", "back", "gone", "gone", "renewed", "late words"]),
    )
    def peer(self, front, what):
        if what == "gone":
            self.away[front] = True
            self.harness.gone(front, self.epochs[front])
            return
        if what == "late words":
            self.harness.joined(front, self.epochs[front] - 1)
            self.harness.gone(front, self.epochs[front] - 1)
            return
        if what == "renewed":
            self.epochs[front] += 1
            self._drop_all_of(front)
        self.away[front] = False
        self.harness.joined(front, self.epochs[front])

    @precondition(lambda self: self.harness.wakes)
    @rule(pick=st.integers(0, 1000))
    def wake(self, pick):
        keys = sorted(self.harness.wakes)
        self._ring(keys[pick % len(keys)])

    def _ring(self, key):
        front = key.removeprefix("front:")
        if self.away.get(front, False):
            self._drop_all_of(front)
        self.harness.wake(key)

    def _drop_all_of(self, front):
        for number, owner in self.owner.items():
            if owner == front and number not in self.harness.ends:
                self.dropped[number] = True

    def teardown(self):
        if not hasattr(self, "harness"):
            return
        harness = self.harness
        harness.drain()
        for number in harness.tasks:
            end = harness.ends.get(number)
            if end is not None and end.finish is Finish.FAILED:
                assert end.failure is not None
            elif end is not None or number not in self.dropped:
                harness.verify(number)


TestTaskExecutor = ExecutorRules.TestCase
TestTaskExecutor.settings = settings(
    max_examples=80,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
