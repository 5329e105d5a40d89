"""Whether a waiting task finds room, and who may go before it when it does not.

    blocks   | held by others | its cached prefix | what it must take | reserve |
                                                  `--- must be free or evictable ---'

All blocks for the known tokens are taken at admission, so a prompt that began is never stopped by
a later one; the reserve lets those that run grow, so that an admission is not undone at once.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from tercet.base.ids import BLOCK_TOKENS
from tercet.cache.cache import Cache
from tercet.cache.identity import blocks_for, pack
from tercet.messages.plan import SlotOpening
from tercet.scheduling.config import SchedulingConfig
from tercet.scheduling.queue import WaitingQueue
from tercet.scheduling.run import TaskRun


def blocks_at_most(run: TaskRun) -> int:
    """Give the blocks that a task can ever hold: its last token is never computed."""
    return blocks_for(max(run.known_max - 1, run.known_given))


def finds_room(run: TaskRun, cache: Cache, *, num_running: int) -> bool:
    """Say whether its known tokens fit now, beside a block for every second task that runs."""
    num_cached, num_unheld = cache.peek(run.task.namespace, run.tokens) if run.share else (0, 0)
    needed = blocks_for(len(run.tokens)) - max(num_cached, run.num_borrowable)
    reserve = (num_running + 1) // 2
    return needed + reserve <= cache.available - num_unheld


def take_room(run: TaskRun, cache: Cache) -> bool:
    """Give the run a holding for all its known tokens, or change nothing and say no."""
    holding = cache.hold(run.task.namespace, run.tokens, share=run.share)
    if run.borrow is not None:
        cache.borrow(holding, run.borrow.blocks[len(holding.table) :])
    num_hit = len(holding.table)
    if cache.extend(holding, blocks_for(len(run.tokens)) - num_hit) is None:
        cache.release(holding, run.tokens, computed=0, index=False)
        return False
    run.holding = holding
    run.extended(len(holding.table))
    run.computed = run.computed_ahead = BLOCK_TOKENS * num_hit
    return True


def give_room_back(run: TaskRun, cache: Cache) -> None:
    """Undo `take_room`."""
    if run.holding is not None:
        cache.release(run.holding, run.tokens, computed=0, index=False)
    run.forget_progress()


def hit_of(run: TaskRun) -> int:
    """Give how many of its prompt tokens nobody computed for it, here or elsewhere."""
    num_own = 0
    if run.holding is not None and run.holding.num_borrowed:
        num_own = BLOCK_TOKENS * run.holding.borrowed_at
    return max(num_own, min(run.computed, run.num_prompt) - run.foreign, 0)


def opening_of(run: TaskRun) -> SlotOpening:
    """Give the words that open its slot over the blocks that it has now."""
    if not run.started:
        run.hit = hit_of(run)
    holding, borrow = run.holding, run.borrow
    table = [] if holding is None else holding.table
    opening = SlotOpening(
        slot=run.slot, task=run.as_task(), computed=run.computed, blocks=pack(table)
    )
    if holding is None or borrow is None or not holding.num_borrowed:
        return opening
    at, count = holding.borrowed_at, holding.num_borrowed
    lives = borrow.lives[4 * at : 4 * (at + count)]
    return replace(opening, borrowed_at=at, lives=lives)


def place_to_admit(
    queue: WaitingQueue,
    cache: Cache,
    config: SchedulingConfig,
    *,
    num_running: int,
    fetching: Iterable[TaskRun],
) -> int | None:
    """Give the place in the queue of the task to admit now; nobody is admitted before a fetch that
    waits for room and was passed over too often.
    """
    if queue.waiting[0].suspect:
        # It waits until nothing can be blamed on others: only those may still come in that started
        # before, were preempted and have gained nothing.
        return next_started(queue, cache, num_running=num_running)
    at = next_to_admit(
        queue,
        cache,
        num_running=num_running,
        max_passes=config.max_passes,
        lookahead=config.lookahead,
    )
    if at is None:
        return None
    order = queue.waiting[at].order
    limit = config.max_passes
    if not num_running:
        return at  # what fetches wait for is held by none of us
    starved = any(one.deferred and one.passed >= limit and one.order < order for one in fetching)
    return None if starved else at


def next_to_admit(
    queue: WaitingQueue, cache: Cache, *, num_running: int, max_passes: int, lookahead: int
) -> int | None:
    """Give the place in the queue of the first task that finds room.

    Whoever waits without room is passed over at most `max_passes` times in all; then everybody
    behind waits too, until blocks come back. A suspect is never passed: it waits for all others to
    stand still, and would wait for ever.
    """
    for at, run in enumerate(queue.waiting[: lookahead + 1]):
        if run.suspect:
            return None
        if finds_room(run, cache, num_running=num_running):
            return at
        if run.passed >= max_passes:
            return None
    return None


def next_started(queue: WaitingQueue, cache: Cache, *, num_running: int) -> int | None:
    """Give the place of the first task that finds room among those that were preempted before they
    gained a token.
    """
    for at, run in enumerate(queue.waiting):
        if run.started and not run.gained and finds_room(run, cache, num_running=num_running):
            return at
    return None
