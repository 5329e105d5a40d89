"""Whatever dies, breaks or is late: every stream is exact, and every job ends exactly once."""

from dataclasses import replace

from fake_executors import FakeExecutor, House
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tercet.base.ids import Epoch, Ids, JobId, TaskId
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import Finish, Job
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.events import DrainRequested, JobCancelled, JobSubmitted, StopFound
from tercet.messages.wire import Role

SECOND = 1_000_000_000
CONFIG = JobExecutorConfig(max_queued_jobs=12, max_tasks_per_executor=4, no_executor_timeout_s=30.0)


class Streams(RuleBasedStateMachine):
    config = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.house = House(self.config)
        self.ids = Ids(Epoch(1))
        self.next_executor = 0
        self.jobs: list[Job] = []
        self.stopped: list[TaskId] = []

    @initialize(count=st.integers(0, 2).map(lambda count: 2 - count))
    def begin(self, count: int) -> None:
        for _ in range(count):
            self.spawn()
        self.house.members()

    def pick(self, index: int) -> FakeExecutor | None:
        executors = list(self.house.executors.values())
        executors.sort(key=lambda executor: (-len(executor.runs), -len(executor.inbox)))
        return executors[index % len(executors)] if executors else None

    @rule(
        prompts=st.integers(1, 3),
        n=st.integers(1, 3),
        max_tokens=st.integers(1, 9),
        seed=st.one_of(st.none(), st.integers(0, 9)),
        length=st.sampled_from([3, 40]),
    )
    def submit(self, prompts: int, n: int, max_tokens: int, seed: int | None, length: int) -> None:
        job = Job(
            id=self.ids.job(),
            model="m",
            prompts=tuple((*range(1, length), number) for number in range(prompts)),
            sampling=SamplingParameters(max_tokens=max_tokens, seed=seed),
            n=n,
        )
        self.jobs.append(job)
        self.house.expect(job)
        self.house.give(JobSubmitted(job=job))

    @precondition(lambda self: self.jobs)
    @rule(index=st.integers(0, 99))
    def cancel(self, index: int) -> None:
        self.house.give(JobCancelled(job=self.jobs[index % len(self.jobs)].id))

    @precondition(lambda self: self.jobs)
    @rule(index=st.integers(0, 99), which=st.integers(0, 9))
    def stop(self, index: int, which: int) -> None:
        job = self.jobs[index % len(self.jobs)]
        number = TaskId(job.id << 12 | which % job.num_tasks)
        self.stopped.append(number)
        self.house.give(StopFound(task=number))

    @rule()
    def spawn(self) -> None:
        if len(self.house.executors) < 3:
            self.house.join(FakeExecutor(self.next_executor))
            self.next_executor += 1

    @rule(unsettled=st.integers(0, 3))
    def tell_members(self, unsettled: int) -> None:
        self.house.members(settled=unsettled != 1)

    @rule(index=st.integers(0, 2), role=st.sampled_from(Role))
    def cast(self, index: int, role: Role) -> None:
        """Whatever it has begun, an executor serves as something else from now on."""
        executor = self.pick(index)
        if executor is not None:
            executor.role = role
            self.house.members()

    @rule(index=st.integers(0, 2), rarely=st.integers(0, 2))
    def expel(self, index: int, rarely: int) -> None:
        executor = self.pick(index)
        if executor is not None and rarely == 1:
            self.house.members(without=(executor.executor,))

    @rule(index=st.integers(0, 2), times=st.integers(1, 4))
    def hear(self, index: int, times: int) -> None:
        executor = self.pick(index)
        for _ in range(times if executor else 0):
            executor.hear()

    @rule(index=st.integers(0, 2), times=st.integers(1, 3))
    def step(self, index: int, times: int) -> None:
        executor = self.pick(index)
        for _ in range(times if executor else 0):
            executor.step()

    @rule(index=st.integers(0, 2), times=st.integers(1, 4))
    def listen(self, index: int, times: int) -> None:
        executor = self.pick(index)
        for _ in range(times if executor and executor.connected else 0):
            self.house.listen(executor)

    @rule(index=st.integers(0, 2), times=st.integers(1, 3))
    def progress(self, index: int, times: int) -> None:
        """An undisturbed while."""
        executor = self.pick(index)
        if executor is None or not executor.connected:
            return
        while executor.hear():
            pass
        for _ in range(times):
            executor.step()
        while self.house.listen(executor):
            pass

    @rule(index=st.integers(0, 2), rarely=st.integers(0, 2))
    def kill(self, index: int, rarely: int) -> None:
        executor = self.pick(index)
        if executor is not None and rarely == 1:
            self.house.bury(executor)

    @rule(index=st.integers(0, 2))
    def cut(self, index: int) -> None:
        executor = self.pick(index)
        if executor is not None and executor.connected:
            self.house.cut(executor)

    @rule(index=st.integers(0, 2))
    def reconnect(self, index: int) -> None:
        executor = self.pick(index)
        if executor is not None:
            self.house.join(executor)

    @rule(index=st.integers(0, 2), lost=st.integers(0, 2), late=st.integers(1, 2))
    def hiccup(self, index: int, lost: int, late: int) -> None:
        """The connection breaks and is back; the executor goes on, then reads what it missed."""
        executor = self.pick(index)
        if executor is None:
            return
        if executor.connected:
            self.house.cut(executor)
        for _ in range(lost):
            executor.step()
        self.house.join(executor)
        for _ in range(late):
            executor.step()
        while self.house.listen(executor):
            pass

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.house.now += seconds * SECOND
        self.house.ring()

    @rule(seconds=st.integers(0, 60), rarely=st.integers(0, 9))
    def drain(self, seconds: int, rarely: int) -> None:
        if rarely == 7:
            self.house.give(DrainRequested(deadline=self.house.now + seconds * SECOND))

    def teardown(self) -> None:
        house = self.house
        healthy = FakeExecutor(self.next_executor)
        house.join(healthy)
        for executor in list(house.executors.values()):
            if not executor.connected:
                house.join(executor)
        house.members()
        while house.work():
            pass
        assert house.machine.idle, "a job did not end though executors are there"
        assert not any(executor.runs for executor in house.executors.values()), "a zombie runs"
        for number, stream in house.streams.items():
            assert len(stream.ends) == 1, f"task {number} has {len(stream.ends)} ends"
            if stream.ends[0].finish is Finish.LENGTH:
                assert len(stream.tokens) == stream.max_tokens
            if stream.ends[0].finish is Finish.STOP:
                assert number in self.stopped
        standing = house.machine.standing()
        assert standing.num_queued_jobs == standing.num_running_jobs == 0
        assert standing.num_waiting_tasks == standing.num_placed_tasks == 0


TestStreams = Streams.TestCase
TestStreams.settings = settings(
    max_examples=250,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class AffineStreams(Streams):
    config = replace(CONFIG, routing="prefix_affinity")


TestAffineStreams = AffineStreams.TestCase
TestAffineStreams.settings = settings(TestStreams.settings, max_examples=60)


def test_job_ids_are_those_of_the_front() -> None:
    assert Ids(Epoch(1)).job() == JobId(1 << 32 | 1)
