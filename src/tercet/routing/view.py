"""What a policy may look at: one read-only line for each executor that could take the task."""

from typing import Protocol

from tercet.base.ids import ExecutorId


class ExecutorView(Protocol):
    """One executor with room for a task, as the job executor that asks knows it."""

    @property
    def executor(self) -> ExecutorId: ...

    @property
    def num_tasks(self) -> int:
        """Tasks that it has and that have not ended."""
        ...

    @property
    def num_tokens(self) -> int:
        """Known tokens of those tasks that have not yet brought a new one: work to prefill."""
        ...
