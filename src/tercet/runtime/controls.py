"""What `/tercet/status` shows of a front and its cluster, and how roles are set."""

import time
from collections.abc import Callable, Mapping

import tercet
from tercet.base.ids import Address, ExecutorId
from tercet.cluster_manager.machine import ClusterManager
from tercet.cluster_manager.standing import MemberStanding
from tercet.job_executor.fleet import executor_at
from tercet.job_executor.machine import JobExecutor
from tercet.job_executor.standing import ExecutorStanding
from tercet.messages.effects import Fact
from tercet.messages.events import ClusterManagerEvent, TargetsSet
from tercet.messages.wire import ExecutorReady, Role
from tercet.observe.metrics import Metrics

ECONOMY = ("cache.source", "cache.costs")
"""Facts of an executor about what fetching and computing costs it (`task_executor.books`)."""


class FrontControls:
    """Implements `api.control.Controls` over the two machines of the first front."""

    def __init__(
        self,
        jobs: JobExecutor,
        cluster: ClusterManager,
        metrics: Metrics,
        *,
        deliver: Callable[[ClusterManagerEvent], None],
        keep: Callable[[dict[str, int]], None],
    ) -> None:
        """`keep` remembers what is wanted for the front's next self."""
        self._jobs = jobs
        self._cluster = cluster
        self._metrics = metrics
        self._deliver = deliver
        self._keep = keep
        self._began = time.monotonic()
        self._books: dict[ExecutorId, dict[str, float]] = {}
        """What executors that are members last told of their blocks."""
        self._costs: dict[ExecutorId, dict[str, dict[str, float]]] = {}
        """And of what fetching and computing costs them, by source (empty: computing)."""

    def heard(self, sender: Address, fact: Fact) -> None:
        """Take note of what an executor tells of itself."""
        number = executor_at(sender)
        if number is None:
            return
        if fact.name == "cache.books":
            self._books[number] = dict(fact.values)
        elif fact.name in ECONOMY:
            costs = self._costs.setdefault(number, {})
            costs[dict(fact.labels).get("source", "")] = dict(fact.values)

    def status(self) -> Mapping[str, object]:
        jobs, cluster = self._jobs.standing(), self._cluster.standing()
        known = {one.executor: one for one in jobs.executors}
        ready = {one.executor: one for one in self._cluster.ready}
        self._books = {number: books for number, books in self._books.items() if number in ready}
        self._costs = {number: costs for number, costs in self._costs.items() if number in ready}
        models: dict[str, dict[str, int]] = {}
        for model, role, count in cluster.wanted:
            models.setdefault(model, {})[role.value] = count
        return {
            "version": tercet.__version__,
            "uptime_s": round(time.monotonic() - self._began, 3),
            "ready": jobs.ready,
            "reason": cluster.failed,
            "wanted": models,
            "jobs": {
                "running": jobs.num_running_jobs,
                "queued": jobs.num_queued_jobs,
                "tasks_waiting": jobs.num_waiting_tasks,
                "tasks_placed": jobs.num_placed_tasks,
            },
            "hosts": [
                {
                    "name": host.name,
                    "agent": host.agent,
                    "data": host.data,
                    "pooled": host.pooled,
                    "executors": sum(one.agent == host.agent for one in cluster.members),
                }
                for host in cluster.hosts
            ],
            "executors": [
                _executor(one, ready.get(one.executor), known.get(one.executor))
                | {"cache": self._books.get(one.executor, {}), **self._economics(one.executor)}
                for one in cluster.members
            ],
            "transfers": self._metrics.transfers(),
            "pool": self._metrics.shares(),
        }

    def _economics(self, number: ExecutorId) -> dict[str, object]:
        costs = dict(self._costs.get(number, {}))
        return {"costs": costs.pop("", {}), "sources": costs}

    def wanted(self, model: str) -> dict[str, int]:
        counts = {role.value: 0 for role in Role}
        for named, role, count in self._cluster.standing().wanted:
            if named == model:
                counts[role.value] = count
        return counts

    def want(self, model: str, counts: Mapping[str, int]) -> None:
        named = tuple((Role(role), count) for role, count in counts.items())
        self._deliver(TargetsSet(model=model, counts=named))
        self._keep(self.wanted(model))


def _executor(
    member: MemberStanding, ready: ExecutorReady | None, known: ExecutorStanding | None
) -> dict[str, object]:
    """One executor: as the cluster manager, as it itself, and as the job executor knows it."""
    shown: dict[str, object] = {
        "executor": member.executor,
        "host": member.agent.removeprefix("agent/"),
        "state": member.state,
        "role": member.role,
        "serves_as": member.serves_as,
    }
    if ready is not None:
        layout = ready.reach.layout
        shown |= {
            "model": ready.model,
            "pid": ready.pid,
            "blocks": ready.num_blocks,
            "kv_dtype": "" if layout is None else layout.dtype,
            "memory": ready.reach.memory,
            "endpoints": ready.reach.endpoints,
        }
    if known is not None:
        load = known.load
        shown |= {
            "connected": known.usable,
            "tasks": known.num_tasks,
            "prompts": known.num_prompts,
            "running": load.running,
            "waiting": load.waiting,
            "blocks_free": load.blocks_free if load.blocks_total else None,
        }
    return shown
