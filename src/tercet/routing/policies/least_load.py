"""The executor with the least work in front of it."""

from collections.abc import Iterable

from tercet.base.ids import ExecutorId
from tercet.routing.view import ExecutorView

TASK_TOKENS = 64
"""What one outstanding task weighs, in tokens to prefill: its decode slows every step of the
others about as much, over its life, as a short chunk of prefill does once.
"""


def least_load(view: Iterable[ExecutorView]) -> ExecutorId | None:
    """Name the executor with the least outstanding work; the lowest id among equals; None if
    nobody has room.
    """
    best: ExecutorId | None = None
    least = 0
    for seen in view:
        load = seen.num_tokens + TASK_TOKENS * seen.num_tasks
        if best is None or load < least or (load == least and seen.executor < best):
            best, least = seen.executor, load
    return best
