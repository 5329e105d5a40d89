"""A read-only picture of a job executor, for health and metrics."""

from msgspec import Struct

from tercet.base.ids import ExecutorId
from tercet.messages.wire import Load


class ExecutorStanding(Struct, frozen=True, kw_only=True):
    """One executor as this job executor knows it."""

    executor: ExecutorId
    model: str
    usable: bool
    """A member of the cluster and connected."""
    num_tasks: int
    num_prompts: int
    """Prompts that it was given to compute for others and that brought no token yet."""
    load: Load
    """What it last said of itself."""


class Standing(Struct, frozen=True, kw_only=True):
    """Counts at one moment."""

    ready: bool
    draining: bool
    num_queued_jobs: int
    """No task of them has started."""
    num_running_jobs: int
    num_waiting_tasks: int
    """In the queue, on no executor."""
    num_placed_tasks: int
    executors: tuple[ExecutorStanding, ...]
