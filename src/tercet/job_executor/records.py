"""What the job executor remembers of a job, a task and an executor; all of it goes at their end.

JobRecord --tasks--> TaskRecord --executor--> ExecutorRecord
                         ^                        |
                         +--------- tasks --------+      while it is placed there
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.jobs.job import Job, Task
from tercet.jobs.sampling import SamplingParameters
from tercet.jobs.states import JobState, TaskState
from tercet.messages.wire import Load, Role, SubmitTask

NO_LOAD = Load()
NUM_ABANDONED_MAX = 256


@dataclass(slots=True)
class PrefillLoad:
    """What an executor was given to compute for others that decode (`routing.view`)."""

    executor: ExecutorId
    num_tasks: int = 0
    num_tokens: int = 0
    num_blocks: int = 0


@dataclass(slots=True, eq=False)
class ExecutorRecord:
    """An executor that the members' list or a connection told of."""

    executor: ExecutorId
    address: Address
    model: str = ""
    role: Role = Role.COLOCATED
    member: bool = False
    """The newest list of members names it, in a role that takes tasks."""
    connected: bool = False
    epoch: Epoch | None = None
    """Of its present connection, or of the last one."""
    tasks: "dict[TaskId, TaskRecord]" = field(default_factory=dict)
    """Placed here, by the id that it knows them under, oldest placement first."""
    num_tokens: int = 0
    """Known tokens of `tasks` that gained none here yet."""
    trial: "TaskRecord | None" = None
    """A suspect that was placed here alone and has not gained a token yet."""
    num_updates: int = 0
    """Messages about tasks that it ever sent."""
    left: dict[TaskId, None] = field(default_factory=dict)
    """Taken from it, while late words about them may still come: cancelled whenever it comes back,
    their ids not used again until it spoke of a younger placement."""
    abandoned: deque[TaskId] = field(default_factory=lambda: deque(maxlen=NUM_ABANDONED_MAX))
    """The last tasks that were cancelled there: said again if the connection breaks meanwhile."""
    load: Load = NO_LOAD
    prefills: PrefillLoad = field(init=False)

    def __post_init__(self) -> None:
        self.prefills = PrefillLoad(self.executor)

    @property
    def num_tasks(self) -> int:
        return len(self.tasks)

    @property
    def usable(self) -> bool:
        return self.member and self.connected


@dataclass(slots=True, eq=False)
class TaskRecord:
    """One task of a job that has not ended."""

    id: TaskId
    """What the client knows it by."""
    wire: TaskId
    """What its present executor knows it by: `id`, or an alias where an older placement of it may
    still be spoken of (`placing.name_for`)."""
    job: "JobRecord"
    prompt: tuple[int, ...]
    sampling: SamplingParameters
    choice: int
    waiting_since: int
    state: TaskState = TaskState.WAITING
    executor: ExecutorRecord | None = None
    generated: list[int] = field(default_factory=list)
    """What the client has."""
    num_base: int = 0
    """How many of `generated` the executor was told with the present placement."""
    fresh: bool = False
    """A token arrived since the present placement."""
    updates_before: int = 0
    """`num_updates` of the executor when the task was placed there."""
    num_tries: int = 0
    num_silent: int = 0
    suspect: bool = False
    accused_by: ExecutorRecord | None = None
    """Whose loss was counted last; taken back if it turns out to live."""
    prompt_told: bool = False
    """`prompt_logprobs` reached the client."""
    cached_tokens: int | None = None
    """What the first piece will say."""
    told: bool = False
    """The first piece has left."""
    prefill: tuple[PrefillLoad, int] | None = None
    """Whose load its prompt counts for, and as how many tokens, until it brings a token."""

    @property
    def model(self) -> str:
        return self.job.job.model

    @property
    def num_pending(self) -> int:
        """Tokens that its executor has to compute before the first new one."""
        return 0 if self.fresh else len(self.prompt) + self.num_base

    def prefilled(self) -> None:
        """Its prompt is nobody's load any more."""
        if self.prefill is not None:
            load, num_tokens = self.prefill
            load.num_tasks -= 1
            load.num_tokens -= num_tokens
            self.prefill = None

    @property
    def full(self) -> bool:
        """Whether the client has all that it may get."""
        return len(self.generated) >= self.sampling.max_tokens

    def message(
        self, reply: Address, leader: TaskId | None, prefill: Address | None = None
    ) -> SubmitTask:
        """Give what an executor needs to go on with the task from what the client has."""
        sampling = self.sampling
        if self.prompt_told and sampling.prompt_logprobs is not None:
            sampling = replace(sampling, prompt_logprobs=None)
        return SubmitTask(
            task=Task(
                id=self.wire,
                model=self.model,
                prompt=self.prompt,
                sampling=sampling,
                choice=self.choice,
                generated=tuple(self.generated),
                namespace=self.job.job.namespace,
            ),
            reply=reply,
            alone=self.suspect,
            leader=leader,
            prefill=prefill,
        )


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job that was accepted and has not ended."""

    job: Job
    cause: str
    """The spelling of its id: the cause of every effect for it."""
    submitted: int
    tasks: dict[TaskId, TaskRecord] = field(default_factory=dict)
    """Those that have not ended."""
    state: JobState = JobState.QUEUED
    started: int = 0
    """When its first task started; 0 before."""
    first_token: int = 0
    num_generated: int = 0
    """Tokens of its ended tasks."""
