"""Clients that play a trace: requests at given times, of given lengths, with parts in common.

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


class TraceClients(Clients):
    """Submits arrivals in their order; forgets each request when it has ended."""

    def __init__(
        self,
        timeline: Timeline,
        spec: WorkloadSpec,
        rand: Rand,
        arrivals: Sequence[Arrival],
        *,
        part_tokens: int,
    ) -> None:
        super().__init__(timeline, spec, rand)
        self._arrivals = arrivals
        self._part_tokens = part_tokens
        self.first_tokens_ns: list[int] = []
        """Of each request, from its arrival."""
        self.num_jobs = 0
        self.ended_ns: list[int] = []
        """When each ended."""

    def arrive(self, fronts: Callable[[], list[tuple[Node, Ids]]]) -> None:
        """Submit them all, each at its time."""

        def submit() -> None:
            node, ids = fronts()[0]
            self._submit(node, ids)
            if self.num_submitted < len(self._arrivals):
                self._timeline.at(self._arrivals[self.num_submitted].at, submit)

        self._timeline.at(self._arrivals[0].at, submit)

    def output(self, front: Address, output: TaskOutput) -> None:
        job = job_of(output.task)
        request = self.requests.get(job)
        if request is None:
            return
        if output.tokens and not request.streams[output.task].tokens:
            self.first_tokens_ns.append(self._timeline.now - request.submitted)
        super().output(front, output)
        if not request.num_open:
            self.ended_ns.append(self._timeline.now)
            del self.requests[job]

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
