"""I6: queues stay within their bounds."""

from tercet.base.errors import must
from tercet.job_executor.machine import JobExecutor
from tercet.messages.effects import Effect, RunStep, Send
from tercet.messages.wire import TaskUpdates
from tercet.sim.node import Node


class BoundChecker:
    """Looks at what a turn could have grown."""

    def __init__(self, *, max_queued_jobs: int, max_waiting_tasks: int, slots: int) -> None:
        self._max_queued_jobs = max_queued_jobs
        self._max_waiting_tasks = max_waiting_tasks
        self._slots = slots

    def look(self, node: Node, _: object, effects: list[Effect]) -> None:
        machine = node.machine
        if isinstance(machine, JobExecutor):
            queued = machine.standing().num_queued_jobs
            must(
                queued <= self._max_queued_jobs,
                f"{node.address} queues {queued} jobs, at most {self._max_queued_jobs}",
            )
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, TaskUpdates):
                load = effect.message.load
                # Preempted tasks wait again: they were within the bound of slots before.
                bound = self._max_waiting_tasks + self._slots
                must(
                    load.waiting + load.running <= bound and load.running <= self._slots,
                    f"{node.address} has {load.waiting} tasks waiting, {load.running} running",
                )
            if isinstance(effect, RunStep):
                count = len(effect.plan.slots) // 4
                must(count <= self._slots, f"{node.address} plans {count} slots")
