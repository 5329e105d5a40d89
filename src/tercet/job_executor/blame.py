"""Who is to blame when an executor dies: only a task that could have done it counts a try.

A death proves little: most are nobody's fault. A task is counted when the executor had begun it
and it brought no new token since; then it runs alone, so that the next death is its own or
nobody's. An executor that dies before it says anything at all (while it reads a task, say) leaves
only the tasks that it got since it last spoke.
"""

from collections.abc import Iterable

from tercet.job_executor.config import JobExecutorConfig
from tercet.job_executor.records import ExecutorRecord, TaskRecord
from tercet.jobs.states import TaskState


def accuse(lost: ExecutorRecord, config: JobExecutorConfig) -> list[TaskRecord]:
    """Count a try, or a silent loss, with every task that could have killed the executor.

    Called while the tasks are still in its `tasks`. Gives the counted ones; `guilty` tells of
    each whether it has used up its tries.
    """
    begun, silent = _accused(lost)
    for task in begun:
        task.num_tries += 1
        task.suspect = True
        task.accused_by = lost
    for task in silent:
        task.num_silent += 1
        task.suspect = task.suspect or task.num_silent >= config.silent_losses_before_suspect
    return begun + silent


def guilty(task: TaskRecord, config: JobExecutorConfig) -> bool:
    """Tell whether the task has cost as many executors as it may."""
    return task.num_tries >= config.max_tries or task.num_silent >= config.max_silent_losses


def acquit(task: TaskRecord) -> None:
    """A new token came: the task is no suspect any more, and all counts begin anew."""
    task.num_tries = task.num_silent = 0
    task.suspect = False
    task.accused_by = None
    if task.executor is not None and task.executor.trial is task:
        task.executor.trial = None


def withdraw(tasks: Iterable[TaskRecord], alive: ExecutorRecord) -> None:
    """Take back the tries that were counted for an executor that had not died."""
    for task in tasks:
        if task.accused_by is alive:
            task.accused_by = None
            task.num_tries -= 1
            task.suspect = task.num_tries > 0
            if not task.suspect and task.executor is not None and task.executor.trial is task:
                task.executor.trial = None


def _accused(lost: ExecutorRecord) -> tuple[list[TaskRecord], list[TaskRecord]]:
    trial = lost.trial
    if trial is not None and trial.state is TaskState.RUNNING:
        return [trial], []
    tasks = list(lost.tasks.values())
    begun = [task for task in tasks if task.state is TaskState.RUNNING and not task.fresh]
    if begun:
        return begun, []
    unheard = tasks if trial is None else [trial]
    return [], [
        task
        for task in unheard
        if task.state is TaskState.PLACED and task.updates_before == lost.num_updates
    ]
