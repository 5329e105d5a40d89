"""What can happen to a machine: one closed union for each of the four."""

from enum import StrEnum

from msgspec import Struct

from tercet.base.ids import Address, Epoch, ExecutorId, JobId, TaskId
from tercet.jobs.job import Job
from tercet.messages.images import ImageHeld, ImageOpened, ImageSealed
from tercet.messages.plan import StepResult
from tercet.messages.wire import Message, Role


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


class MoveEnd(StrEnum):
    """How a `Move` ended; only after DONE is the target what was asked for."""

    DONE = "done"
    CORRUPT = "corrupt"
    """The bytes that came are not those that were summed."""
    STALE = "stale"
    """The source began another life meanwhile."""
    GONE = "gone"
    """Nobody knows the source's memory, or the connection broke."""
    LATE = "late"
    """The deadline passed."""
    FULL = "full"
    """The target (a disk) takes nothing."""


class Moved(Struct, frozen=True, kw_only=True, tag=True):
    ticket: int
    end: MoveEnd
    size: int = 0
    """Bytes that were copied."""
    duration_ns: int = 0
    """From its first byte's request to its last byte's arrival; without the wait for a layer."""
    wire: str = ""


class Summed(Struct, frozen=True, kw_only=True, tag=True):
    ticket: int
    checks: tuple[int, ...]
    """One fold for each strip."""


class ArenaLent(Struct, frozen=True, kw_only=True, tag=True):
    """The blocks of a peer's arena can be read in place, under ids of this executor's own."""

    memory: str
    first_block: int
    num_blocks: int


class ArenaWithdrawn(Struct, frozen=True, kw_only=True, tag=True):
    """Its owner is gone: no new reader of it may start. Those that read it go on; once no plan
    under way and no run names it, the machine lets go of it by `Unmap`.
    """

    memory: str


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
    started: int = 0
    """Machine time at which the engine began with it; 0: nobody says."""


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


class SlabScanned(Struct, frozen=True, kw_only=True, tag=True):
    """Labels that were found on a host's own disk after a start; in several of these. Until the
    last one nothing is written there.
    """

    memory: str
    labels: bytes
    """`pool.labels.LABEL_BYTES` each, as they were read: broken ones among them."""
    last: bool


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
TaskExecutorEvent = (
    StepDone | Received | PeerJoined | PeerGone | Woke | Moved | Summed | ArenaLent | ArenaWithdrawn
)
NodeAgentEvent = (
    Spawned
    | SpawnFailed
    | Adopted
    | ProcessExited
    | ProgressSeen
    | SlabScanned
    | Received
    | PeerJoined
    | PeerGone
    | Woke
    | Moved
    | Summed
    | ImageHeld
    | ImageOpened
    | ImageSealed
)


class TargetsSet(Struct, frozen=True, kw_only=True, tag=True):
    """A person wants another number of executors in these roles of a model; roles that are not
    named stay as they are.
    """

    model: str
    counts: tuple[tuple[Role, int], ...]


ClusterManagerEvent = Received | PeerJoined | PeerGone | Woke | DrainRequested | TargetsSet
Event = JobExecutorEvent | TaskExecutorEvent | NodeAgentEvent | ClusterManagerEvent
