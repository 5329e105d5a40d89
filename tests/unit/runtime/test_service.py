"""The front's service over a real job executor's machine."""

import asyncio
from collections.abc import Callable

from tercet.base.ids import Address, Epoch, Ids, JobId, task_id
from tercet.base.rand import Rand
from tercet.cluster_manager.config import ClusterManagerConfig, GroupConfig
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.machine import JobExecutor
from tercet.jobs.job import FailureCode, Finish, Job, TaskOutput
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Emit
from tercet.messages.events import DrainRequested
from tercet.runtime.driver import Host, Ports, Process
from tercet.runtime.service import FrontService

FRONT = Address("front/0")


def run(body: Callable[[FrontService, "Host[DrainRequested]"], None]) -> None:
    async def scene() -> None:
        machine = JobExecutor(JobExecutorConfig(), address=FRONT, rand=Rand(1))
        cluster = ClusterManager(ClusterManagerConfig(), groups=(GroupConfig(model="m"),))
        service = FrontService(Ids(Epoch(7)), machine, cluster)
        host = Host(Process(), FRONT, machine, epoch=Epoch(7), ports=Ports(emit=service.emit))
        service.host = host
        body(service, host)
        host.close()

    asyncio.run(scene())


def job(number: JobId, n: int = 2) -> Job:
    sampling = SamplingParameters(max_tokens=4)
    return Job(id=number, model="m", prompts=((1, 2),), sampling=sampling, n=n)


def test_a_cancelled_job_ends_once_for_each_task_and_is_forgotten() -> None:
    def body(service: FrontService, host: object) -> None:
        got: list[TaskOutput] = []
        number = service.new_job_id()
        service.submit(job(number), got.append)
        assert (got, service.num_open) == ([], 1)
        service.cancel(number)
        assert [piece.finish for piece in got] == [Finish.CANCELLED] * 2
        assert service.num_open == 0
        service.cancel(number)
        service.stop_found(task_id(number, 0))
        assert len(got) == 2

    run(body)


def test_a_task_that_stops_leaves_the_others() -> None:
    def body(service: FrontService, host: object) -> None:
        got: list[TaskOutput] = []
        number = service.new_job_id()
        service.submit(job(number), got.append)
        service.stop_found(task_id(number, 1))
        assert [(piece.task, piece.finish) for piece in got] == [(task_id(number, 1), Finish.STOP)]
        assert service.num_open == 1

    run(body)


def test_pieces_of_jobs_that_are_over_go_nowhere() -> None:
    def body(service: FrontService, host: object) -> None:
        service.emit(Emit(output=TaskOutput(task=task_id(JobId(99), 0), tokens=(1,))))

    run(body)


def test_a_drained_front_refuses_and_says_that_it_is_not_ready() -> None:
    def body(service: FrontService, host: "Host[DrainRequested]") -> None:
        host.deliver(DrainRequested(deadline=2**62))
        got: list[TaskOutput] = []
        service.submit(job(service.new_job_id(), n=1), got.append)
        assert [piece.failure.code for piece in got if piece.failure] == [FailureCode.SHUTTING_DOWN]
        health = service.health()
        assert (health.live, health.ready) == (True, False)
        assert "shutting down" in health.reason

    run(body)


def test_without_executors_it_lives_and_is_not_ready() -> None:
    def body(service: FrontService, host: object) -> None:
        health = service.health()
        assert (health.live, health.ready) == (True, False)
        assert service.loads() == ()
        assert service.new_job_id() < service.new_job_id()

    run(body)
