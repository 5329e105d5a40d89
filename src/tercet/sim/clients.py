"""Clients in virtual time: they submit jobs, read streams, leave, and find stop strings."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from tercet.base.ids import Address, Ids, JobId, TaskId, index_of, job_of, task_id
from tercet.base.rand import Rand
from tercet.jobs.job import Finish, Job, TaskOutput
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.events import JobCancelled, JobSubmitted, StopFound
from tercet.sim.node import Node
from tercet.sim.scenario import WorkloadSpec
from tercet.sim.timeline import MS, S, Timeline

COMMON_TEXTS = 5
BYTES = 200
"""Prompt tokens are below this: plain ids of every vocabulary."""


@dataclass(slots=True)
class Stream:
    """What one task's client has got so far."""

    tokens: list[int] = field(default_factory=list)
    finish: Finish | None = None
    detail: str = ""


@dataclass(slots=True)
class Request:
    """One job as its client sees it."""

    job: Job
    front: Address
    submitted: int
    streams: dict[TaskId, Stream]
    stop_after: int = 0
    """A stop string is found once a stream has so many tokens; 0: never."""
    cancelled: bool = False
    cut: bool = False
    """The front died: the connection closed and the client is told nothing more."""
    num_open: int = 0


class Outcome(Struct, frozen=True, kw_only=True):
    """How the streams of a run ended."""

    jobs: int
    streams: int
    tokens: int
    finished: int
    cancelled: int
    failed: dict[str, int]
    cut: int


class Clients:
    """Everybody who asks; also the bookkeeping that the checkers read."""

    def __init__(self, timeline: Timeline, spec: WorkloadSpec, rand: Rand) -> None:
        self._timeline = timeline
        self._spec = spec
        self._rand = rand
        self._common = [
            tuple(self._rand.below(BYTES) for _ in range(spec.shared_prefix))
            for _ in range(COMMON_TEXTS)
        ]
        self.requests: dict[JobId, Request] = {}
        self.num_submitted = 0
        self.last_arrival = 0
        self.poison: dict[JobId, None] = {}
        self._num_poison = 0
        self._ends: dict[str, int] = {}
        self._num_tokens = 0
        self._num_streams = 0
        self.on_output: list[Callable[[Request, TaskOutput, Stream], None]] = []
        """Checkers that see a piece before it is added to its stream."""

    def add_poison(self, count: int) -> None:
        """Make so many of the jobs to come kill the executor that computes them."""
        self._num_poison += count

    def arrive(self, fronts: Callable[[], list[tuple[Node, Ids]]]) -> None:
        """Submit all jobs of the workload, one after another, to fronts that live."""
        delay = -math.log(max(self._rand.unit(), 1e-12)) / self._spec.rate

        def submit() -> None:
            alive = fronts()
            if alive:
                node, ids = alive[self._rand.below(len(alive))]
                self._submit(node, ids)
            if self.num_submitted < self._spec.jobs:
                self.arrive(fronts)

        self._timeline.after(int(delay * S), submit)

    def output(self, front: Address, output: TaskOutput) -> None:
        """Take a piece that a front emitted."""
        request = self.requests.get(job_of(output.task))
        if request is None or request.cut or request.front != front:
            return
        stream = request.streams[output.task]
        for look in self.on_output:
            look(request, output, stream)
        stream.tokens.extend(output.tokens)
        self._num_tokens += len(output.tokens)
        if output.finish is None:
            self._maybe_stop(request, output.task, stream)
            return
        stream.finish = output.finish
        reason = output.failure.code if output.failure else output.finish
        self._ends[reason] = self._ends.get(reason, 0) + 1
        request.num_open -= 1

    def front_died(self, front: Address) -> None:
        """Close the connections of all clients of a front."""
        for request in self.requests.values():
            if request.front == front and request.num_open:
                request.cut = True
                request.num_open = 0

    @property
    def waits(self) -> bool:
        """Whether anybody still waits."""
        return any(request.num_open for request in self.requests.values())

    def open(self) -> list[Request]:
        """Requests whose client still waits."""
        return [request for request in self.requests.values() if request.num_open]

    def outcome(self) -> Outcome:
        ends = dict(self._ends)
        good = ends.pop(Finish.STOP, 0) + ends.pop(Finish.LENGTH, 0)
        return Outcome(
            jobs=len(self.requests),
            streams=self._num_streams,
            tokens=self._num_tokens,
            finished=good,
            cancelled=ends.pop(Finish.CANCELLED, 0),
            failed=dict(sorted(ends.items())),
            cut=sum(request.cut for request in self.requests.values()),
        )

    def _submit(self, node: Node, ids: Ids) -> None:
        self.num_submitted += 1
        self.last_arrival = self._timeline.now
        job = self._job(ids.job())
        streams = {task_id(job.id, index): Stream() for index in range(job.num_tasks)}
        request = Request(job, node.address, self._timeline.now, streams)
        request.num_open = len(streams)
        self._num_streams += len(streams)
        self.requests[job.id] = request
        if self._num_poison:
            self._num_poison -= 1
            self.poison[job.id] = None
        if self._rand.chance(self._spec.stop_share):
            request.stop_after = 1 + self._rand.below(8)
        node.deliver(JobSubmitted(job=job))
        if self._rand.chance(self._spec.cancel_share):
            self._timeline.after(self._rand.below(400 * MS), lambda: self._cancel(node, request))

    def _job(self, number: JobId) -> Job:
        spec, rand = self._spec, self._rand
        length = spec.prompt_min + rand.below(spec.prompt_max - spec.prompt_min + 1)
        prompt = tuple(rand.below(BYTES) for _ in range(length))
        if rand.chance(spec.shared_share):
            prompt = (self._common[rand.below(COMMON_TEXTS)] + prompt)[: spec.prompt_max]
        n = 2 + rand.below(3) if rand.chance(spec.several_share) else 1
        sampling = SamplingParameters(
            max_tokens=spec.output_min + rand.below(spec.output_max - spec.output_min + 1),
            temperature=1.0,
            seed=rand.bits() >> 1,
            ignore_eos=rand.chance(0.5),
        )
        return Job(
            id=number,
            model="cost",
            prompts=(prompt,),
            sampling=sampling,
            n=n,
            namespace=f"tenant{rand.below(spec.tenants)}",
        )

    def _cancel(self, node: Node, request: Request) -> None:
        if request.num_open and not request.cut:
            request.cancelled = True
            node.deliver(JobCancelled(job=request.job.id))

    def _maybe_stop(self, request: Request, task: TaskId, stream: Stream) -> None:
        if not request.stop_after or len(stream.tokens) < request.stop_after:
            return
        front = self._front(request)
        if front is not None:
            self._timeline.after(0, lambda: front.deliver(StopFound(task=task)))

    front_of: Callable[[Address], Node | None]
    """Set by the world: the living node of a front."""

    def _front(self, request: Request) -> Node | None:
        return self.front_of(request.front)


def choice_of(job: Job, task: TaskId) -> int:
    """Which of its prompt's choices a task is."""
    return index_of(task) % job.n
