"""What must hold of a scheduler: sums after every event, everything now and then."""

from collections.abc import Iterable

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, BlockId
from tercet.cache.identity import blocks_for
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState


def check_sums(scheduler: Scheduler, *, num_elsewhere: int = 0) -> None:
    """Raise unless blocks add up, limits hold and work is under way; O(1).

    `num_elsewhere`: leases, fetches and stores that hold blocks: room comes back as they end.
    """
    scheduler.cache.check_sums()
    num_running = len(scheduler.running)
    must(num_running <= scheduler.config.max_slots, f"{num_running} tasks have slots")
    must(
        scheduler.flights or not scheduler.has_work or num_elsewhere,
        f"{num_running} tasks run and {len(scheduler.queue)} wait, but no step is under way",
    )
    must(scheduler.flights or not scheduler.leaving, "blocks wait for a step that is not under way")


def check_whole(
    scheduler: Scheduler, elsewhere: Iterable[BlockId] = (), *, num_elsewhere: int = 0
) -> None:
    """Raise unless every run, block and slot is where its state says; O(everything).

    `elsewhere`: blocks that leases, fetches and stores hold, each as often as it is held.
    """
    check_sums(scheduler, num_elsewhere=num_elsewhere)
    scheduler.cache.check()
    scheduler.queue.check()
    slots: dict[int, TaskRun] = {}
    for run in scheduler.running.values():
        must(run.state is RunState.RUNNING, f"task {run.name} runs and is {run.state.value}")
        must(run.slot not in slots, f"slot {run.slot} has two tasks")
        slots[run.slot] = run
        must(run.holding is not None, f"task {run.name} runs without blocks")
    for run in scheduler.leaving.values():
        must(run.flights > 0, f"task {run.name} is done and keeps its blocks")
    for leader in scheduler.queue.leaders():
        must(leader in scheduler.runs, f"tasks follow {leader}, which is gone")
    _check_flights(scheduler)
    for run in scheduler.fetching.values():
        must(run.state is RunState.FETCHING, f"task {run.name} fetches and is {run.state.value}")
        must(run.holding is None, f"task {run.name} fetches and holds blocks itself")
    _check_blocks(scheduler, elsewhere)
    fresh = sum(run.started and not run.gained for run in scheduler.runs.values())
    must(fresh == scheduler.num_fresh, f"{fresh} tasks are fresh, {scheduler.num_fresh} counted")


def _check_flights(scheduler: Scheduler) -> None:
    named: dict[int, int] = {}
    for planned in scheduler.flights:
        for run in planned.runs:
            named[run.order] = named.get(run.order, 0) + 1
    for run in _all(scheduler):
        found = named.get(run.order, 0)
        must(found == run.flights, f"task {run.name} is in {found} plans, {run.flights} counted")
        must(run.computed <= run.computed_ahead, f"task {run.name} computed more than planned")
        reach = min(run.computed_ahead + run.drafts_ahead, run.known_max - 1)
        must(reach <= run.capacity, f"task {run.name} overruns its blocks")
        must(run.computed <= len(run.tokens), f"task {run.name} computed tokens nobody knows")
        if run.flights == 0 and run.state is RunState.RUNNING:
            must(run.known_ahead == len(run.tokens), f"task {run.name} waits for a lost token")
            must(run.computed_ahead == run.computed, f"task {run.name} waits for lost rows")
            must(run.drafts_ahead == 0, f"task {run.name} waits for lost guesses")


def _check_blocks(scheduler: Scheduler, elsewhere: Iterable[BlockId]) -> None:
    holders: dict[BlockId, int] = {}
    for block in elsewhere:
        holders[block] = holders.get(block, 0) + 1
    for run in _all(scheduler):
        if run.holding is None:
            must(run.capacity == 0, f"task {run.name} counts blocks that it does not hold")
            continue
        must(
            run.capacity == BLOCK_TOKENS * len(run.holding.table),
            f"task {run.name} counts {run.capacity} tokens of room",
        )
        must(
            run.holding.num_canonical <= blocks_for(run.computed),
            f"task {run.name} shares what it did not compute",
        )
        for block in run.holding.own_blocks:
            holders[block] = holders.get(block, 0) + 1
    pool = scheduler.cache.pool
    for block, count in holders.items():
        found = pool.holds(block)
        must(found == count, f"block {block}: {count} hold it, the pool counts {found}")
    must(
        len(holders) == pool.num_held,
        f"{pool.num_held} blocks are held, {len(holders)} by somebody: a block has leaked",
    )


def _all(scheduler: Scheduler) -> list[TaskRun]:
    ended = [run for run in scheduler.leaving.values() if run.state is RunState.ENDED]
    return [*scheduler.runs.values(), *ended]
