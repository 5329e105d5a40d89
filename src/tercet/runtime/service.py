"""The front's `Service`: jobs go to the job executor's machine, pieces to their sinks."""

import time
from dataclasses import dataclass

from tercet.api.service import Health, ServedModel, Sink
from tercet.base.ids import Ids, JobId, TaskId, job_of
from tercet.cluster_manager.machine import ClusterManager
from tercet.job_executor.machine import JobExecutor
from tercet.jobs.job import Job
from tercet.messages.effects import Emit
from tercet.messages.events import JobCancelled, JobExecutorEvent, JobSubmitted, StopFound
from tercet.observe.board import ExecutorLoad
from tercet.runtime.driver import Host


@dataclass
class _Open:
    """A job whose tasks have not all ended."""

    sink: Sink
    num_tasks: int


class FrontService:
    """Implements `Service` over one job executor and, where it lives here, the cluster manager."""

    def __init__(self, ids: Ids, machine: JobExecutor, cluster: ClusterManager) -> None:
        self.host: Host[JobExecutorEvent] | None = None
        """Set once the machine is under the driver, before the first request."""
        self.served: tuple[ServedModel, ...] = ()
        self._ids = ids
        self._machine = machine
        self._cluster = cluster
        self._open: dict[JobId, _Open] = {}
        self.began = time.monotonic()

    @property
    def num_open(self) -> int:
        """Jobs that have not ended."""
        return len(self._open)

    def models(self) -> tuple[ServedModel, ...]:
        return self.served

    def health(self) -> Health:
        standing = self._machine.standing()
        cluster = self._cluster.standing()
        reason = ""
        if standing.draining:
            reason = "The server is shutting down."
        elif not standing.ready:
            reason = cluster.failed or "No task executor is ready."
        details = (
            ("executors_ready", str(cluster.num_ready)),
            ("executors_wanted", str(cluster.num_wanted)),
            ("jobs_running", str(standing.num_running_jobs)),
            ("jobs_queued", str(standing.num_queued_jobs)),
        )
        live = not cluster.failed or standing.ready
        return Health(live=live, ready=standing.ready, reason=reason, details=details)

    def new_job_id(self) -> JobId:
        return self._ids.job()

    def submit(self, job: Job, sink: Sink) -> None:
        self._open[job.id] = _Open(sink, job.num_tasks)
        self._deliver(JobSubmitted(job=job))

    def cancel(self, job: JobId) -> None:
        if job in self._open:
            self._deliver(JobCancelled(job=job))

    def stop_found(self, task: TaskId) -> None:
        if job_of(task) in self._open:
            self._deliver(StopFound(task=task))

    def emit(self, effect: Emit) -> None:
        """Carry out the machine's effect: the piece goes to its job's sink."""
        output = effect.output
        number = job_of(output.task)
        job = self._open.get(number)
        if job is None:
            return
        if output.finish is not None:
            job.num_tasks -= 1
            if job.num_tasks == 0:
                del self._open[number]
        job.sink(output)

    def loads(self) -> tuple[ExecutorLoad, ...]:
        """Give what the metrics show of executors."""
        return tuple(
            ExecutorLoad(model=one.model, executor=one.executor, load=one.load)
            for one in self._machine.standing().executors
            if one.usable
        )

    def _deliver(self, event: JobExecutorEvent) -> None:
        if self.host is not None:
            self.host.deliver(event)
