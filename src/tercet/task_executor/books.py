"""Where an executor's blocks are, and what stands between it and others: for status and metrics."""

from tercet.messages.effects import Fact
from tercet.task_executor.machine import TaskExecutor


def books(machine: TaskExecutor) -> Fact:
    """Give counts at one moment; equal ones mean that nothing has changed."""
    stats = machine.cache.stats()
    values = (
        ("free", float(stats.free)),
        ("held", float(stats.held)),
        ("cached", float(stats.cached)),
        ("total", float(stats.total)),
        ("tokens_asked", float(stats.tokens_asked)),
        ("tokens_hit", float(stats.tokens_hit)),
        ("evictions", float(stats.evictions)),
        *machine.partners.counts(),
    )
    return Fact(name="cache.books", values=values)
