"""Who gives its blocks back when a running task must grow and nothing is free.

running, by admission   [ a | b | c | d ]
                          oldest     latest
b needs a block: d is preempted (its full blocks stay cached, so coming back is cheap), then c;
d needs a block: d itself steps back. a is never preempted, so somebody always gets ahead.
"""

from tercet.base.ids import TaskId
from tercet.scheduling.run import TaskRun


def victim_for(run: TaskRun, running: dict[TaskId, TaskRun], *, keep: TaskRun | None) -> TaskRun:
    """Give the latest admitted task, which may be the needy one itself, but never `keep` (a
    suspect that runs alone while the others pause) as long as there is another.
    """
    for candidate in reversed(running.values()):
        if candidate is not keep:
            return candidate
    return run
