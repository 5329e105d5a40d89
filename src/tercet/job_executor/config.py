"""What can be set of a job executor."""

from dataclasses import dataclass
from typing import Literal

from tercet.base.errors import Invalid

Routing = Literal["least_load", "prefix_affinity"]


@dataclass(frozen=True, kw_only=True)
class JobExecutorConfig:
    """Bounds of the queue and of patience; every value is checked when it is made."""

    max_queued_jobs: int = 1024
    """Jobs of which no task has started yet; one more is answered `overloaded` at once."""
    max_queued_tasks: int = 32_768
    """Tasks of those jobs; a job that would pass it is answered `overloaded` at once."""
    max_tasks_per_executor: int = 128
    """Tasks that one executor has at a time; the rest waits here, for whoever is free first."""
    max_tries: int = 3
    """Executors that may die on a task, each before it gained a new token, until it fails."""
    max_silent_losses: int = 16
    """The same for executors that died before they said anything after they got the task."""
    silent_losses_before_suspect: int = 2
    """From so many silent losses on, a task is retried alone."""
    routing: Routing = "least_load"
    """Which executor gets a task: the one with the least work, or `prefix_affinity`, the one that
    has most of its prompt."""
    no_executor_timeout_s: float = 60.0
    """A task waits so long while no executor of its model is ready, then it fails."""

    def __post_init__(self) -> None:
        for name in (
            "max_queued_jobs",
            "max_queued_tasks",
            "max_tasks_per_executor",
            "max_tries",
            "max_silent_losses",
            "silent_losses_before_suspect",
        ):
            value = getattr(self, name)
            if value < 1:
                raise Invalid(f"{name} is {value}; expected at least 1.", parameter=name)
        if not 0 < self.no_executor_timeout_s < 1e9:
            raise Invalid(
                f"no_executor_timeout_s is {self.no_executor_timeout_s}; "
                "expected a positive number of seconds.",
                parameter="no_executor_timeout_s",
            )
