"""One task that kills whoever computes it fails after bounded deaths; nobody else is counted."""

import pytest
from fake_executors import FakeExecutor, House

from tercet.base.ids import Epoch, Ids
from tercet.job_executor.config import JobExecutorConfig
from tercet.jobs.job import FailureCode, Finish, Job
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.events import JobSubmitted

POISON = (6, 6, 6)


def serve(house: House, *, replicas: int, poisons: tuple[tuple[int, ...], ...]) -> None:
    """Work until all is done, with a replacement for every executor that dies."""
    born = 0
    for _ in range(10_000):
        while len(house.executors) < replicas:
            house.join(FakeExecutor(born, poisons=poisons))
            born += 1
            house.members()
        if not house.work():
            return
    raise AssertionError("the work never ends")


def submit(house: House, ids: Ids, prompt: tuple[int, ...], max_tokens: int = 8) -> Job:
    sampling = SamplingParameters(max_tokens=max_tokens)
    job = Job(id=ids.job(), model="m", prompts=(prompt,), sampling=sampling)
    house.expect(job)
    house.give(JobSubmitted(job=job))
    return job


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("at", [0, 7, 49])
@pytest.mark.parametrize("max_tries", [1, 3])
def test_the_innocent_finish(replicas: int, at: int, max_tries: int) -> None:
    house, ids = House(JobExecutorConfig(max_tries=max_tries)), Ids(Epoch(1))
    jobs = [submit(house, ids, POISON if n == at else (1, n)) for n in range(50)]
    serve(house, replicas=replicas, poisons=(POISON,))
    bad = jobs[at].id << 12
    ends = {number: stream.ends for number, stream in house.streams.items()}
    assert all(len(end) == 1 for end in ends.values())
    end = ends[bad][0]
    assert end.finish is Finish.FAILED
    assert end.failure is not None
    assert end.failure.code is FailureCode.EXECUTOR_LOST
    assert house.num_deaths == max_tries
    assert "in a row died while they computed it" in end.failure.detail
    failed = [number for number, end in ends.items() if end[0].finish is not Finish.LENGTH]
    # With one try nobody can be told apart from those that began in the same step.
    assert failed == [bad] if max_tries > 1 else bad in failed


@pytest.mark.parametrize("replicas", [1, 3])
def test_many_poisons_cost_bounded_deaths(replicas: int) -> None:
    poisons = tuple((6, n) for n in range(10))
    house, ids = House(), Ids(Epoch(1))
    for n in range(40):
        submit(house, ids, poisons[n // 4] if n % 4 == 0 else (1, n))
    serve(house, replicas=replicas, poisons=poisons)
    ends = [stream.ends[0].finish for stream in house.streams.values()]
    assert ends.count(Finish.FAILED) == 10
    assert ends.count(Finish.LENGTH) == 30
    assert house.num_deaths <= 3 * 10


class InstantDeath(FakeExecutor):
    """Dies while it reads the poison, before it says anything."""

    def hear(self) -> bool:
        heard = super().hear()
        if any(run.task.prompt == POISON for run in self.runs.values()):
            self.alive = False
            self.runs.clear()
            self.inbox.clear()
        return heard


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_task_that_kills_before_it_starts_is_bounded_too(replicas: int) -> None:
    house, ids = House(JobExecutorConfig(max_silent_losses=6)), Ids(Epoch(1))
    jobs = [submit(house, ids, POISON if n == 3 else (1, n)) for n in range(20)]
    born = 0
    for _ in range(5_000):
        while len(house.executors) < replicas:
            house.join(InstantDeath(born))
            born += 1
            house.members()
        if not house.work():
            break
    ends = {number: stream.ends[0] for number, stream in house.streams.items()}
    failed = [number for number, end in ends.items() if end.finish is Finish.FAILED]
    assert failed == [jobs[3].id << 12]
    assert "soon after they were given it" in str(ends[failed[0]].failure)
    assert house.num_deaths <= 7
    assert house.machine.idle


def test_deaths_that_are_nobodys_fault_fail_nobody() -> None:
    """An executor that dies every few steps: all streams end well, however often it happens."""
    house, ids = House(), Ids(Epoch(1))
    for n in range(12):
        submit(house, ids, (1, n), max_tokens=40)
    born = steps = 0
    while not house.machine.idle:
        if not house.executors:
            house.join(FakeExecutor(born, slots=16))
            born += 1
            house.members()
        house.work()
        steps += 1
        if steps % 3 == 0:
            for executor in list(house.executors.values()):
                house.bury(executor)
            house.members()
    assert born > 10
    assert all(s.ends[0].finish is Finish.LENGTH for s in house.streams.values())
