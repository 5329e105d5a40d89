"""What a machine asks its driver to do: one closed union, carried out in the given order."""

from msgspec import Struct

from tercet.base.ids import Address, ExecutorId
from tercet.jobs.job import TaskOutput
from tercet.messages.images import OpenImage, SealImage
from tercet.messages.kv import Strip
from tercet.messages.plan import StepPlan
from tercet.messages.wire import Message, Role


class Send(Struct, frozen=True, kw_only=True, tag=True):
    """Hand a message to a peer, at most once, in order with others to the same peer. If the peer
    is not connected the message is dropped: machines recover by `PeerGone` and repetition.
    """

    to: Address
    message: Message
    cause: str = ""


class RunStep(Struct, frozen=True, kw_only=True, tag=True):
    """Run a plan after those asked for before; `StepDone` answers each, in order."""

    plan: StepPlan
    predicted_ns: int
    cause: str = ""


class Wake(Struct, frozen=True, kw_only=True, tag=True):
    """Send `Woke(key)` at machine time `at` (or at once, if past); replaces the same key."""

    at: int
    key: str
    cause: str = ""


class Emit(Struct, frozen=True, kw_only=True, tag=True):
    """A piece of a stream for the client."""

    output: TaskOutput
    cause: str = ""


class Spawn(Struct, frozen=True, kw_only=True, tag=True):
    """Make the arena, fork an executor with it; `Spawned` or `SpawnFailed` answers."""

    executor: ExecutorId
    role: Role
    model: str
    cause: str = ""


class Kill(Struct, frozen=True, kw_only=True, tag=True):
    """SIGKILL through the process's descriptor; `ProcessExited` follows."""

    executor: ExecutorId
    reason: str
    cause: str = ""


class Forget(Struct, frozen=True, kw_only=True, tag=True):
    """The executor is gone and no lease on its arena lasts: give its memory back."""

    executor: ExecutorId
    cause: str = ""


class Move(Struct, frozen=True, kw_only=True, tag=True):
    """Copy bytes from memory of anybody into memory of one's own; `Moved` answers, once.

    Parts of `part_bytes` are summed as they come and the sums folded. Moves may overtake each
    other; their targets are disjoint.
    """

    ticket: int
    source: Strip
    target: Strip
    part_bytes: int
    check: int | None
    """What the fold must be; None: what the source's side says while it sends."""
    step: int = 0
    layer: int = 0
    """Not before the source's layer clock has passed this layer (from 1) of this step (0: at
    once)."""
    deadline: int = 0
    """Machine time after which it has failed."""
    label: bytes = b""
    """What a disk keeps beside the bytes once they are there, so that they are known again after a
    restart (`pool.labels`)."""
    cause: str = ""


class Sum(Struct, frozen=True, kw_only=True, tag=True):
    """Checksum bytes of one's own memory; `Summed` answers, once."""

    ticket: int
    sources: tuple[Strip, ...]
    part_bytes: int
    cause: str = ""


class Unmap(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing reads this lent arena any more, and nothing will: give its place back."""

    memory: str
    cause: str = ""


class Fact(Struct, frozen=True, kw_only=True, tag=True):
    """Something worth counting or logging; `observe` makes metrics and log lines of it.

    `name` is dotted (`task.preempted`); `values` are numbers, `labels` short strings. Never
    holds prompt text or token ids.
    """

    name: str
    values: tuple[tuple[str, float], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    cause: str = ""


Effect = (
    Send
    | RunStep
    | Wake
    | Emit
    | Spawn
    | Kill
    | Forget
    | Move
    | Sum
    | Unmap
    | OpenImage
    | SealImage
    | Fact
)
