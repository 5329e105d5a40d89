"""What computing would take here: the other side of every decision to fetch."""

from math import ceil

from tercet.messages.plan import StepCost
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler

WAITING_MAX = 64
"""So many tasks that wait before are counted; behind more of them any fetch is hidden."""


def prefill_ns(cost: StepCost, *, computed: int, known: int, step_ns_max: int) -> float:
    """Give what computing the tokens from `computed` to `known` takes in steps of such lengths."""
    rows = known - computed
    pairs = rows * computed + rows * (rows + 1) // 2
    linear = rows * cost.per_row_ns + pairs * cost.per_pair_ns
    room = max(step_ns_max - cost.base_ns, cost.per_row_ns, 1.0)
    return linear + cost.base_ns * max(1, ceil(linear / room))


def saved_ns(
    cost: StepCost, *, begun: int, ends: list[int], known: int, step_ns_max: int
) -> list[float]:
    """Give what is saved of computing tokens `begun` to `known` if it begins at each end instead;
    the last token is always computed.
    """
    whole = prefill_ns(cost, computed=begun, known=known, step_ns_max=step_ns_max)
    return [
        whole - prefill_ns(cost, computed=end, known=known, step_ns_max=step_ns_max) for end in ends
    ]


def queue_ns(scheduler: Scheduler, run: TaskRun) -> float:
    """Give how long prompts before a task take at least: until then it could not begin anyway."""
    rows = 0
    for other in scheduler.running.values():
        rows += max(0, other.known_ahead - other.computed_ahead - 1)
    for other in scheduler.queue.waiting[:WAITING_MAX]:
        if other.order >= run.order:
            break
        rows += len(other.tokens)
    return rows * scheduler.pace.cost.per_row_ns
