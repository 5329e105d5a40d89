"""The only answer to a task that will not be queued, if it will not."""

from tercet.jobs.job import Failure, FailureCode, Finish
from tercet.messages.wire import TaskUpdate
from tercet.scheduling.admission import blocks_at_most
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.config import Capacity


def refusal(run: TaskRun, scheduler: Scheduler, capacity: Capacity) -> TaskUpdate | None:
    """Give the answer; None for a task that can be queued."""
    num_known = run.known_given
    if run.task.generated and num_known >= run.known_max:
        return TaskUpdate(run.id, started=True, finish=Finish.LENGTH)
    num_waiting, limit = scheduler.num_waiting, scheduler.config.max_waiting
    needed, total = blocks_at_most(run), capacity.num_blocks
    if not run.num_prompt:
        failure = Failure(FailureCode.NO_ROOM, "an empty prompt leaves nothing to compute")
    elif num_known >= capacity.context_max:
        failure = Failure(
            FailureCode.NO_ROOM,
            f"{num_known} tokens leave no room in a context of {capacity.context_max}",
        )
    elif needed > total:
        failure = Failure(
            FailureCode.NO_ROOM,
            f"the task may grow to {run.known_max} tokens, which need {needed} KV blocks; "
            f"this executor has {total}",
        )
    elif num_waiting >= limit:
        failure = Failure(FailureCode.OVERLOADED, f"{num_waiting} tasks wait; {limit} may")
    else:
        return None
    return TaskUpdate(run.id, finish=Finish.FAILED, failure=failure)
