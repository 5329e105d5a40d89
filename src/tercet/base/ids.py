"""Names of things that outlive one call, as plain integers and strings.

A job id is (front epoch, counter) and a task id is (job id, index), packed so that one integer
travels on the wire and, of one front, orders by time:

    62            44 43                        12 11          0
    +---------------+----------------------------+------------+
    |  front epoch  |          counter           | task index |     task id
    +---------------+----------------------------+------------+
    |          job id (task id >> 12)            |

Of an epoch the lowest nineteen bits are here: enough to tell selves of a front apart that follow
one another. Which self is the newer one, the whole epochs of connections say.
"""

from typing import NewType

from msgspec import Struct

JobId = NewType("JobId", int)
TaskId = NewType("TaskId", int)
ExecutorId = NewType("ExecutorId", int)
"""Number of a task executor; issued by the cluster manager, never reused."""
Epoch = NewType("Epoch", int)
"""Incarnation of a process; issued by the supervisor, grows with every start."""
Address = NewType("Address", str)
"""Where a machine lives: `front/0`, `cluster`, `agent/local`, `executor/3`."""
Nanoseconds = NewType("Nanoseconds", int)
BlockId = NewType("BlockId", int)
"""A block over all mapped arenas: arena number x blocks per arena + index."""
BLOCK_TOKENS = 16
"""Tokens whose KV one block holds, everywhere; a full block is the unit of sharing."""

TASK_BITS = 12
COUNTER_BITS = 32
EPOCH_BITS = 19
"""The sign stays free: ids fit signed words of 64 bits."""
TASKS_PER_JOB_MAX = 1 << TASK_BITS


class BlockRef(Struct, frozen=True, array_like=True):
    """One block of one arena in one of its lives; a stale generation is a block that is gone."""

    arena: int
    index: int
    generation: int


def job_id(epoch: Epoch, counter: int) -> JobId:
    return JobId((epoch & (1 << EPOCH_BITS) - 1) << COUNTER_BITS | counter)


def task_id(job: JobId, index: int) -> TaskId:
    return TaskId(job << TASK_BITS | index)


def job_of(task: TaskId) -> JobId:
    return JobId(task >> TASK_BITS)


def index_of(task: TaskId) -> int:
    return task & (TASKS_PER_JOB_MAX - 1)


def show_job(job: JobId) -> str:
    """The spelling of a job in logs: `epoch.counter`."""
    return f"{job >> COUNTER_BITS}.{job & (1 << COUNTER_BITS) - 1}"


def show_task(task: TaskId) -> str:
    """The spelling of a task in logs: `epoch.counter/index`."""
    return f"{show_job(job_of(task))}/{index_of(task)}"


class Ids:
    """Issues job ids of one front; the driver owns it, so a simulation can repeat them."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._next = 0

    def job(self) -> JobId:
        self._next += 1
        return job_id(self._epoch, self._next)
