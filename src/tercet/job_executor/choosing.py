"""Which of several executors: by the policy that the configuration names."""

from collections.abc import Iterable

from tercet.base.ids import ExecutorId
from tercet.job_executor.config import Routing
from tercet.job_executor.records import ExecutorRecord, PrefillLoad, TaskRecord
from tercet.routing.policies.least_load import least_load
from tercet.routing.policies.prefix_affinity import PrefixAffinity, prompt_keys


class Choosing:
    """One for all lanes; without affinity it remembers nothing and reads no token."""

    def __init__(self, routing: Routing) -> None:
        self._affinity = PrefixAffinity() if routing == "prefix_affinity" else None

    def choose(
        self, task: TaskRecord, view: Iterable[ExecutorRecord] | Iterable[PrefillLoad]
    ) -> ExecutorId | None:
        """Name the executor that is to compute the task's prompt."""
        if self._affinity is None:
            return least_load(view)
        return self._affinity.choose(view, self._keys(task))

    def placed(self, task: TaskRecord, record: ExecutorRecord) -> None:
        """Take note of who computes the prompt."""
        if self._affinity is not None:
            num_blocks = record.prefills.num_blocks
            self._affinity.placed(record.executor, self._keys(task), num_blocks=num_blocks)

    def gone(self, executor: ExecutorId) -> None:
        if self._affinity is not None:
            self._affinity.gone(executor)

    def _keys(self, task: TaskRecord) -> list[bytes]:
        namespace = task.job.job.namespace
        return prompt_keys(namespace, task.model, (*task.prompt, *task.generated))
