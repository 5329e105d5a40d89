"""Clients that play a trace: requests of given lengths, with parts in common, at given times or so
many at a time.

parts   | 7 | 12 | 90 |     numbers: equal ones before equal ones are equal text
'- part_tokens each, the last one cut to the length of the prompt
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tercet.base.ids import Address, Ids, JobId, job_of
from tercet.base.rand import Rand
from tercet.jobs.job import Job, TaskOutput
from tercet.jobs.sampling import SamplingParameters
from tercet.sim.clients import BYTES, Clients
from tercet.sim.memories import mixed
from tercet.sim.node import Node
from tercet.sim.scenario import WorkloadSpec
from tercet.sim.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    at: int
    """Virtual nanoseconds."""
    prompt_tokens: int
    output_tokens: int
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """One request that has ended."""

    at: int
    delivered: int
    """Tokens by then, of all requests: of prompts that were computed, and output."""


class TraceClients(Clients):
    """Submits arrivals in their order; forgets each request when it has ended.

    With `num_open` times do not count: so many are open, and the next one comes when one has ended.
    """

    def __init__(
        self,
        timeline: Timeline,
        spec: WorkloadSpec,
        rand: Rand,
        arrivals: Sequence[Arrival],
        *,
        part_tokens: int,
        num_open: int = 0,
    ) -> None:
        super().__init__(timeline, spec, rand)
        self._arrivals = arrivals
        self._part_tokens = part_tokens
        self._num_open = num_open
        self._next: Callable[[], None] = _nothing
        self.first_tokens_ns: list[int] = []
        """Of each request, from its arrival."""
        self.num_jobs = 0
        self.ended: list[Ended] = []
        self._delivered = 0

    def arrive(self, fronts: Callable[[], list[tuple[Node, Ids]]]) -> None:
        """Submit them all, each at its time or in its turn."""
        first, count = self._arrivals[0].at, len(self._arrivals)

        def submit() -> None:
            node, ids = fronts()[0]
            self._submit(node, ids)
            if not self._num_open and self.num_submitted < count:
                self._timeline.at(self._arrivals[self.num_submitted].at, submit)

        def follow() -> None:
            if self.num_submitted < count:
                submit()

        for _ in range(min(self._num_open, count) or 1):
            self._timeline.at(first, submit)
        if self._num_open:
            self._next = follow

    def output(self, front: Address, output: TaskOutput) -> None:
        job = job_of(output.task)
        request = self.requests.get(job)
        if request is None:
            return
        if output.tokens:
            if not request.streams[output.task].tokens:
                self.first_tokens_ns.append(self._timeline.now - request.submitted)
                self._delivered += len(request.job.prompts[0])
            self._delivered += len(output.tokens)
        super().output(front, output)
        if not request.num_open:
            self.ended.append(Ended(self._timeline.now, self._delivered))
            del self.requests[job]
            self._timeline.after(0, self._next)

    def _job(self, number: JobId) -> Job:
        arrival = self._arrivals[self.num_jobs]
        self.num_jobs += 1
        return Job(
            id=number,
            model="cost",
            prompts=(prompt_of(arrival, self._part_tokens),),
            sampling=SamplingParameters(
                max_tokens=arrival.output_tokens,
                temperature=1.0,
                seed=self.num_jobs,
                ignore_eos=True,
            ),
            n=1,
            namespace="tenant",
        )


def prompt_of(arrival: Arrival, part_tokens: int) -> tuple[int, ...]:
    """The tokens of a prompt: a function of its parts."""
    parts = np.array(arrival.parts, np.uint64)
    places = np.arange(part_tokens, dtype=np.uint64)
    tokens = mixed(parts[:, None] * np.uint64(part_tokens) + places) % np.uint64(BYTES)
    return tuple(tokens.ravel()[: arrival.prompt_tokens].tolist())


def _nothing() -> None:
    """Times say when the next one comes."""
