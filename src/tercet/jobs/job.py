"""One request becomes one job, a job is one task for every completion that was asked for."""

from enum import StrEnum

from msgspec import Struct

from tercet.base.ids import JobId, TaskId
from tercet.jobs.sampling import SamplingParameters


class Finish(StrEnum):
    """Why a task ended; the first three are what a client asked for."""

    STOP = "stop"
    """An end id, a stop id or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the context is used up."""
    CANCELLED = "cancelled"
    """The client went away, or the front that owned the job is gone."""
    FAILED = "failed"
    """A reason outside the client's power; `Failure` says which."""


class FailureCode(StrEnum):
    """Stable names of failures; `api` maps each to a status and a sentence."""

    OVERLOADED = "overloaded"
    """A queue is full (I6)."""
    NO_EXECUTOR = "no_executor"
    """No executor became ready in time."""
    EXECUTOR_LOST = "executor_lost"
    """Executors died again and again while they computed this task."""
    SHUTTING_DOWN = "shutting_down"
    NO_ROOM = "no_room"
    """The task can never fit the KV memory of any executor."""


class Failure(Struct, frozen=True):
    code: FailureCode
    detail: str


class Job(Struct, frozen=True, kw_only=True):
    """What the edge hands to the job executor. Token ids are already within the vocabulary.

    Task index = prompt index x n + choice, as OpenAI numbers choices.
    """

    id: JobId
    model: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingParameters
    n: int = 1
    namespace: str = ""
    """The tenant: part of every cache key (I8)."""
    request: str = ""
    """The client's `x-request-id`, for logs."""

    @property
    def num_tasks(self) -> int:
        return len(self.prompts) * self.n


class Task(Struct, frozen=True, kw_only=True):
    """One completion to compute; `generated` are tokens that the client already has (resume)."""

    id: TaskId
    model: str
    prompt: tuple[int, ...]
    sampling: SamplingParameters
    """`seed` is set here, always."""
    choice: int = 0
    """Position among the `n` of its prompt: keys the sampler's noise."""
    generated: tuple[int, ...] = ()
    namespace: str = ""


class TokenLogprobs(Struct, frozen=True, array_like=True):
    """Log-probability of one token and of the best alternatives, best first.

    Taken from the raw distribution (before temperature, penalties and filters).
    """

    token: int
    logprob: float
    rank: int
    """1 for the most probable token."""
    top: tuple[tuple[int, float], ...] = ()


class TaskOutput(Struct, frozen=True, kw_only=True):
    """A piece of one task's stream, in order and without gaps; exactly one piece has `finish`."""

    task: TaskId
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """Only in the first piece; entry 0 is None (nothing predicts the first token)."""
    cached_tokens: int | None = None
    """How many prompt tokens came from the cache; in the first piece only."""
    finish: Finish | None = None
    stop_token: int | None = None
    """The stop or end id that ended it (also the last of `tokens`), None otherwise."""
    failure: Failure | None = None
