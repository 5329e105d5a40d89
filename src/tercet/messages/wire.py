"""What travels between machines, on one host or between hosts. One tagged union, `Message`.

job executor ──SubmitTask, CancelTask──▶ task executor ──TaskUpdates──▶ job executor
cluster manager ──StartExecutor, StopExecutor──▶ node agent ──AgentReport, Executor*──▶ it
cluster manager ──HostRefused──▶ node agent
cluster manager ──Members──▶ job executor, task executor, node agent
task executor ──ExecutorReady──▶ node agent
"""

from enum import StrEnum

from msgspec import Struct

from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.jobs.job import Failure, Finish, Task, TokenLogprobs
from tercet.messages.images import ImageMessage
from tercet.messages.kv import Host, KvMessage, Reach
from tercet.messages.plan import StepCost

PROTOCOL = 1


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    COLOCATED = "colocated"


class Hello(Struct, frozen=True, kw_only=True, tag=True):
    """First record of every connection, in both directions; anything else closes it. Before it
    the listener sends a challenge of 32 bytes (`runtime.identity`).
    """

    protocol: int
    sender: Address
    epoch: Epoch
    nonce: bytes
    proof: bytes
    """HMAC-SHA256 under the cluster secret over side, sender, epoch, nonce and challenge."""


class SubmitTask(Struct, frozen=True, kw_only=True, tag=True):
    task: Task
    reply: Address
    """Where `TaskUpdates` go; kept with the task, so that fronts can be many."""
    alone: bool = False
    """A suspect: run it with no other task until it gains a token."""
    leader: TaskId | None = None
    """A sibling with the same prompt that was submitted before: wait for its prefill, so that
    the prompt is computed once."""
    prefill: Address | None = None
    """An executor that is to compute the prompt's full blocks; the receiver reads them there, or
    computes them itself if that one cannot."""


class CancelTask(Struct, frozen=True, kw_only=True, tag=True):
    task: TaskId


class TaskUpdate(Struct, frozen=True, array_like=True):
    """One task's share of a step. `started` is sent before the first step that holds the task
    runs, so that whoever watches knows which tasks a death can be blamed on.
    """

    task: TaskId
    started: bool = False
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    cached_tokens: int | None = None
    stop_token: int | None = None
    failure: Failure | None = None


class Load(Struct, frozen=True, array_like=True):
    """How busy an executor is; rides on every `TaskUpdates`."""

    waiting: int = 0
    running: int = 0
    blocks_free: int = 0
    """Free or evictable."""
    blocks_total: int = 0


class TaskUpdates(Struct, frozen=True, kw_only=True, tag=True):
    """What one step brought to all tasks of one reply address; without updates it says only
    how much room there is after cancels and overruns.
    """

    executor: ExecutorId
    updates: tuple[TaskUpdate, ...]
    load: Load


class ExecutorReady(Struct, frozen=True, kw_only=True, tag=True):
    """A task executor can serve; repeated to a node agent that was restarted."""

    executor: ExecutorId
    epoch: Epoch
    pid: int
    role: Role
    model: str
    cost: StepCost
    num_blocks: int
    context_max: int
    phases_ns: tuple[tuple[str, int], ...] = ()
    """Durations of Scaler-Pre, TE-Pre-Load, TE-Load, TE-Post-Load, Scaler-Post (DeepServe)."""
    reach: Reach = Reach()


class ExecutorGone(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    reason: str


class StartExecutor(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    role: Role
    model: str


class StopExecutor(Struct, frozen=True, kw_only=True, tag=True):
    executor: ExecutorId
    reason: str


class ChangeRole(Struct, frozen=True, kw_only=True, tag=True):
    """To an agent, which passes it on to the executor: serve as this from now on. It answers with
    `ExecutorReady`; what it has begun it finishes.
    """

    executor: ExecutorId
    role: Role


class HostRefused(Struct, frozen=True, kw_only=True, tag=True):
    """To an agent: its host is no part of this cluster and has to end."""

    reason: str
    """A sentence."""


class AgentReport(Struct, frozen=True, kw_only=True, tag=True):
    """All executors of a host, ready or starting; sent when the agent (re)joins and on demand."""

    agent: Address
    starting: tuple[ExecutorId, ...]
    ready: tuple[ExecutorReady, ...]
    next_executor: int
    """Lowest executor id that this host has never seen: a restarted manager goes on from it."""
    host: Host | None = None


class StartWaits(Struct, frozen=True, kw_only=True, tag=True):
    """An executor's start waits for its model's image, which is coming: not yet is it late. Said
    every second.
    """

    executor: ExecutorId


class Members(Struct, frozen=True, kw_only=True, tag=True):
    """The executors that can take tasks now; the whole list, so that one lost message is mended
    by the next. An executor that is absent is lost: its tasks go elsewhere.
    """

    version: int
    executors: tuple[ExecutorReady, ...]
    settled: bool
    """False while the manager still waits for the first report of its agents: absence means
    nothing yet."""
    hosts: tuple[Host, ...] = ()


Message = (
    SubmitTask
    | CancelTask
    | TaskUpdates
    | ExecutorReady
    | ExecutorGone
    | StartExecutor
    | StopExecutor
    | AgentReport
    | StartWaits
    | Members
    | ChangeRole
    | HostRefused
    | KvMessage
    | ImageMessage
)
