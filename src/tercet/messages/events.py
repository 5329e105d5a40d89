"""What can happen to a machine: one closed union for each of the four."""

from msgspec import Struct

from tercet.base.ids import Address, Epoch, ExecutorId, JobId, TaskId
from tercet.jobs.job import Job
from tercet.messages.plan import StepResult
from tercet.messages.wire import Message


class Received(Struct, frozen=True, kw_only=True, tag=True):
    """A peer said something; `epoch` is the sender's."""

    sender: Address
    epoch: Epoch
    message: Message


class PeerJoined(Struct, frozen=True, kw_only=True, tag=True):
    """A connection with a peer stands (its hello was good). A higher epoch than before means
    that the peer's former self is gone with all that it owned.
    """

    peer: Address
    epoch: Epoch


class PeerGone(Struct, frozen=True, kw_only=True, tag=True):
    """The connection with a peer ended; whether the peer is dead is another's to say."""

    peer: Address
    epoch: Epoch


class Woke(Struct, frozen=True, kw_only=True, tag=True):
    """A `Wake` effect came due. A later `Wake` with the same key replaces an earlier one."""

    key: str


class DrainRequested(Struct, frozen=True, kw_only=True, tag=True):
    """Take nothing new, let what runs finish until `deadline` (machine time), then end it."""

    deadline: int


# job executor


class JobSubmitted(Struct, frozen=True, kw_only=True, tag=True):
    job: Job


class JobCancelled(Struct, frozen=True, kw_only=True, tag=True):
    """The client went away."""

    job: JobId


class StopFound(Struct, frozen=True, kw_only=True, tag=True):
    """The front found a stop string in the task's text: it is finished, compute no more."""

    task: TaskId


# task executor


class StepDone(Struct, frozen=True, kw_only=True, tag=True):
    result: StepResult


# node agent


class Spawned(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    pid: int


class SpawnFailed(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    reason: str


class Adopted(Struct, frozen=True, kw_only=True, tag=True):
    """A restarted agent finds an executor that its former self started and that still lives."""

    executor: ExecutorId
    pid: int


class ProcessExited(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    reason: str


class ProgressSeen(Struct, frozen=True, kw_only=True, tag=True):
    """A sample of an executor's progress page (shared memory)."""

    executor: ExecutorId
    steps: int
    """Steps completed since the executor started."""
    step_started: int
    """Machine time at which the running step began; 0 when none runs."""
    step_predicted_ns: int
    has_work: bool
    loop_beat: int
    """Machine time of the last turn of the executor's event loop."""


JobExecutorEvent = (
    JobSubmitted
    | JobCancelled
    | StopFound
    | Received
    | PeerJoined
    | PeerGone
    | Woke
    | DrainRequested
)
TaskExecutorEvent = StepDone | Received | PeerJoined | PeerGone | Woke
NodeAgentEvent = (
    Spawned
    | SpawnFailed
    | Adopted
    | ProcessExited
    | ProgressSeen
    | Received
    | PeerJoined
    | PeerGone
    | Woke
)
ClusterManagerEvent = Received | PeerJoined | PeerGone | Woke | DrainRequested
Event = JobExecutorEvent | TaskExecutorEvent | NodeAgentEvent | ClusterManagerEvent
