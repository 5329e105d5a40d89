"""One run of a scenario: build, let it happen, check, and tell the story if it breaks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tercet.base.errors import InvariantBroken, must
from tercet.base.ids import TaskId, index_of
from tercet.base.rand import Rand
from tercet.devices.contract import MadeUp
from tercet.devices.cost.device import invent
from tercet.engine.slots import made_up_end
from tercet.jobs.job import Task
from tercet.messages.effects import Effect
from tercet.node_agent.machine import NodeAgent
from tercet.sim.arrivals import Arrival, TraceClients
from tercet.sim.checkers.bounds import BoundChecker
from tercet.sim.checkers.leases import LeaseChecker
from tercet.sim.checkers.streams import StreamChecker
from tercet.sim.clients import Clients, Outcome, Request, choice_of
from tercet.sim.cluster import Cluster
from tercet.sim.faults import Faults
from tercet.sim.journal import Journal
from tercet.sim.network import Network
from tercet.sim.node import Node, World
from tercet.sim.scenario import Scenario
from tercet.sim.timeline import S, Timeline
from tercet.task_executor.machine import TaskExecutor

EVENTS_BETWEEN_WHOLE_SUMS = 1000
EVENTS_MAX = 20_000_000


class Report(Struct, frozen=True, kw_only=True):
    """What a run was; equal seeds give equal reports."""

    scenario: str
    seed: int
    digest: str
    events: int
    virtual_s: float
    outcome: Outcome
    faults: dict[str, int]
    executors_started: int
    moves: dict[str, int]
    """How moves of blocks ended, by end and plane."""
    blocks: dict[str, int]
    """Read as context, those of them in arenas of others, leases; messages lost and doubled."""


class Broken(InvariantBroken):
    """An invariant did not hold; the text has the seed and the story of the job."""


class Run:
    """A scenario in progress; tests reach in to break things on purpose."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        trace: Sequence[Arrival] = (),
        part_tokens: int = 0,
        num_open: int = 0,
    ) -> None:
        """With a trace its requests come instead of the workload's, at their times or so many at
        a time, and no checker looks.
        """
        rand = Rand(seed, scenario.name)
        self.scenario = scenario
        self.seed = seed
        self.timeline = Timeline()
        self.journal = Journal(silent=bool(trace))
        network = Network(self.timeline, scenario.network, rand.stream("network"))
        self.world = World(self.timeline, network, self.journal)
        self.clients = Clients(self.timeline, scenario.workload, rand.stream("clients"))
        if trace:
            self.clients = TraceClients(
                self.timeline,
                scenario.workload,
                rand.stream("clients"),
                trace,
                part_tokens=part_tokens,
                num_open=num_open,
            )
        self.cluster = Cluster(
            self.world,
            scenario.cluster,
            scenario.network,
            clients=self.clients,
            rand=rand.stream("cluster"),
        )
        self.faults = Faults(self.timeline, self.cluster, rand.stream("faults"))
        self.num_jobs = len(trace) or scenario.workload.jobs
        self.streams = StreamChecker(self.clients, Undisturbed(self.cluster))
        if trace:
            self.clients.on_output.clear()
        self.bounds = BoundChecker(
            max_queued_jobs=scenario.cluster.max_queued_jobs,
            max_waiting_tasks=scenario.cluster.max_waiting_tasks,
            slots=scenario.cluster.slots,
        )
        self.leases = LeaseChecker()
        self._checks = not trace
        if self._checks:
            self.world.after_turn.extend([self.bounds.look, self.leases.look, self._sums])

    def go(self) -> Report:
        """Run to the end; `Broken` with seed and story if an invariant does not hold."""
        try:
            self.faults.start(self.scenario.faults)
            self.cluster.start()
            self.clients.arrive(self.cluster.fronts)
            self._until_quiet()
        except InvariantBroken as broken:
            raise Broken(self._story(str(broken))) from broken
        return self._report()

    def _until_quiet(self) -> None:
        quiet_by = None
        while self.timeline.step():
            must(self.journal.events < EVENTS_MAX, "the run does not come to an end")
            if self.clients.num_submitted < self.num_jobs:
                continue
            if quiet_by is None:
                self.faults.stop()
                quiet_by = self.timeline.now + int(self.scenario.quiet_after_s * S)
            if self.timeline.now > quiet_by or (not self.clients.waits and self._at_rest()):
                break
        self.streams.at_quiet()
        late = [node.address for node in self.world.nodes.values() if not rests(node.machine)]
        must(not late, f"jobs have ended, but {', '.join(late)} still hold something")
        self._nothing_held()
        if self._checks:
            self._whole_sums()

    def _at_rest(self) -> bool:
        sealed = any(host.lendings.num_sealed for host in self.cluster.hosts)
        return not sealed and all(rests(node.machine) for node in self.world.nodes.values())

    def _nothing_held(self) -> None:
        """Raise unless free + cached = total everywhere, and no memory of the dead is left."""
        for node in self.world.nodes.values():
            if isinstance(node.machine, TaskExecutor):
                stats = node.machine.cache.stats()
                must(
                    stats.held == 0 and stats.free + stats.cached == stats.total,
                    f"{node.address} is at rest and holds {stats.held} blocks",
                )
        for host in self.cluster.hosts:
            sealed = host.lendings.num_sealed
            must(sealed == 0, f"{host.name} keeps {sealed} arenas of dead executors")

    def _sums(self, node: Node, _: Any, effects: list[Effect]) -> None:  # noqa: ARG002
        if isinstance(node.machine, TaskExecutor):
            node.machine.check()
        if self.journal.events % EVENTS_BETWEEN_WHOLE_SUMS == 0:
            self._whole_sums()

    def _whole_sums(self) -> None:
        for node in self.world.nodes.values():
            if isinstance(node.machine, TaskExecutor):
                node.machine.check(whole=True)
            elif node.began:
                node.machine.check()

    def _report(self) -> Report:
        return Report(
            scenario=self.scenario.name,
            seed=self.seed,
            digest=self.journal.digest(),
            events=self.journal.events,
            virtual_s=self.timeline.now / S,
            outcome=self.clients.outcome(),
            faults=dict(sorted(self.faults.done.items())),
            executors_started=self.cluster.ground.num_started,
            moves=dict(sorted(self.cluster.ground.mover.ends.items())),
            blocks={
                "read": self.cluster.ground.num_read,
                "foreign": self.cluster.ground.num_foreign,
                "lent": self.leases.num_granted,
                "lost": self.world.network.num_lost,
                "doubled": self.world.network.num_doubled,
            },
        )

    def _story(self, broken: str) -> str:
        waiting = self.clients.open()
        subject = self._named(broken) or (waiting[0] if waiting else None)
        lines = [
            broken,
            f"scenario {self.scenario.name}, seed {self.seed}, event {self.journal.events}",
        ]
        if subject is not None:
            ids = [subject.job.id, *subject.streams]
            lines += [f"the story of job {subject.job.id}:", self.journal.story(*ids)]
        return "\n".join(lines)

    def _named(self, broken: str) -> Request | None:
        """The request whose task the sentence names."""
        from_name = {f"{job >> 32}.{job & 0xFFFFFFFF}/": job for job in self.clients.requests}
        found = next((job for name, job in from_name.items() if name in broken), None)
        return None if found is None else self.clients.requests[found]


def rests(machine: object) -> bool:
    """Whether a machine holds nothing for anybody."""
    if isinstance(machine, TaskExecutor):
        load, partners = machine.load(), machine.partners
        busy = load.waiting or load.running or partners.num_holding or machine.scheduler.flights
        return not (busy or partners.lender.num_lendings or partners.asker.num_fetches)
    return not (isinstance(machine, NodeAgent) and machine.pooling.is_busy)


class Undisturbed:
    """The tokens that a task has when nothing goes wrong, worked out once a task."""

    def __init__(self, cluster: Cluster) -> None:
        self._shape = cluster.shape
        self._repeat = cluster.spec.repeat
        self._known: dict[TaskId, list[int]] = {}

    def __call__(self, request: Request, task: TaskId, index: int) -> int:
        tokens = self._known.get(task)
        if tokens is None:
            tokens = self._known[task] = self._work_out(request, task)
        must(index < len(tokens), f"token {index} of a task of at most {len(tokens)}")
        return tokens[index]

    def _work_out(self, request: Request, task: TaskId) -> list[int]:
        job = request.job
        seed, count = job.sampling.seed or 0, job.sampling.max_tokens
        prompt = job.prompts[index_of(task) // job.n]
        choice = choice_of(job, task)
        alone = Task(id=task, model=job.model, prompt=prompt, sampling=job.sampling, choice=choice)
        made_up = MadeUp(
            vocab=self._shape.vocab,
            end_ids=self._shape.end_ids,
            end_position=np.full(count, made_up_end(alone), np.int32),
        )
        tokens = invent(
            np.full(count, seed, np.uint64),
            np.full(count, choice, np.int32),
            np.arange(len(prompt), len(prompt) + count, dtype=np.int32),
            made_up=made_up,
            repeat=self._repeat,
        )
        return [int(token) for token in tokens]


def run_scenario(scenario: Scenario, seed: int) -> Report:
    """Run a scenario from a seed; `Broken` if an invariant does not hold."""
    return Run(scenario, seed).go()
