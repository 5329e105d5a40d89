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


def economics(machine: TaskExecutor) -> list[Fact]:
    """Give what was learned of every source of values, and what it is weighed against: steps now,
    the size of a token's keys and values. Empty until something was fetched.
    """
    partners = machine.partners
    sources = (*partners.rtc.economy.standing(), *partners.asker.ways.standing())
    facts = [
        Fact(
            name="cache.source",
            values=(
                ("latency_s", one.latency_ns / 1e9),
                ("bytes_per_s", one.bytes_per_s),
                ("fetches", float(one.fetches)),
                ("bytes", float(one.bytes)),
            ),
            labels=(("source", one.source),),
        )
        for one in sources
    ]
    layout = machine.capacity.reach.layout
    if not facts or layout is None:
        return []
    cost = machine.scheduler.pace.cost
    values = (
        ("base_ns", cost.base_ns),
        ("per_row_ns", cost.per_row_ns),
        ("per_pair_ns", cost.per_pair_ns),
        ("step_ns_max", float(machine.scheduler.config.step_ns_max)),
        ("bytes_per_token", layout.block_bytes / layout.block_tokens),
        ("context_max", float(machine.capacity.context_max)),
    )
    return [*facts, Fact(name="cache.costs", values=values)]
