"""One task's time at this executor: what is known of it, computed, held and under way.

    known        prompt and generated tokens                     len(tokens)
    computed     leading tokens whose KV is in the blocks        as the last result said
    ..._ahead    the same after all plans under way, if all goes as planned and no guess is right

    tokens   [ p p p p p p p p p p g g ]
                       ^ computed     ^ known    ^ known_ahead (values that no one knows yet)

A step's rows are `computed_ahead .. computed_ahead + rows`; the step samples when its rows reach
`known_ahead`, and then one more token will be known. Where guessed tokens are verified, up to
`drafts_ahead` more will be known and computed: blocks are there for the most.
"""

from array import array

from msgspec import Struct
from msgspec.structs import replace

from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, TaskId, show_task
from tercet.cache.cache import Holding
from tercet.jobs.job import Task, TokenLogprobs
from tercet.messages.wire import SubmitTask
from tercet.scheduling.acceptance import Acceptance
from tercet.scheduling.states import RunState, step_to


class Borrow(Struct, frozen=True):
    """Leading blocks of a prompt that another executor lends, in place."""

    blocks: tuple[BlockId, ...]
    """Ids in this executor's address range."""
    lives: bytes
    """u4 for each."""


class TaskRun:
    """Owned by the scheduler; the task executor reads it, results add tokens."""

    __slots__ = (
        "acceptance",
        "alone",
        "borrow",
        "capacity",
        "computed",
        "computed_ahead",
        "deferred",
        "drafts_ahead",
        "flights",
        "foreign",
        "hit",
        "holding",
        "id",
        "known_ahead",
        "known_given",
        "known_max",
        "leader",
        "num_prompt",
        "order",
        "passed",
        "preemptions",
        "prefill_only",
        "prompt_logprobs",
        "reply",
        "session",
        "share",
        "slot",
        "started",
        "state",
        "submitted",
        "task",
        "tokens",
        "told_first",
    )

    def __init__(
        self,
        submit: SubmitTask,
        *,
        order: int,
        now: int,
        context_max: int,
        prefill_only: bool = False,
    ) -> None:
        task = submit.task
        self.prefill_only = prefill_only
        """Its prompt is computed and nothing is sampled: for an executor that decodes."""
        self.borrow: Borrow | None = None
        self.deferred = False
        """Its fetch waits for room."""
        self.foreign = 0
        """Prompt tokens that were computed elsewhere for this very task: no hit of any cache."""
        self.task = task
        self.id: TaskId = task.id
        self.reply: Address = submit.reply
        self.alone = submit.alone
        self.leader = submit.leader
        self.order = order
        """Place in the order of arrival, for good."""
        self.submitted = now
        self.num_prompt = len(task.prompt)
        self.tokens = array("i", task.prompt + task.generated)
        self.known_given = len(self.tokens)
        """Known tokens at the submission: those that the client has."""
        self.known_max = min(self.num_prompt + task.sampling.max_tokens, context_max)
        self.share = task.sampling.prompt_logprobs is None
        """Whether it may start from cached blocks."""
        self.state = RunState.FOLLOWING if submit.leader is not None else RunState.WAITING
        self.started = False
        """The reply address was told that a step will hold it."""
        self.told_first = False
        """The reply address has got its first tokens."""
        self.hit = 0
        """Prompt tokens that came from the cache at the first admission."""
        self.passed = 0
        """Later tasks that were admitted before it."""
        self.preemptions = 0
        self.session = 0
        """Which connection of its reply address it came by."""
        self.slot = -1
        self.holding: Holding | None = None
        self.capacity = 0
        """Tokens that the table has room for."""
        self.computed = 0
        self.computed_ahead = 0
        self.known_ahead = self.known_given
        self.drafts_ahead = 0
        """Guessed tokens that plans under way verify: so many more may be known then."""
        self.flights = 0
        """Plans under way that name it."""
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        self.acceptance = Acceptance()

    @property
    def name(self) -> str:
        return show_task(self.id)

    @property
    def gained(self) -> bool:
        """Whether it gained a token here."""
        return len(self.tokens) > self.known_given

    @property
    def suspect(self) -> bool:
        """Whether it must run with no other task."""
        return self.alone and len(self.tokens) == self.known_given

    @property
    def prompt_computed(self) -> bool:
        """Whether siblings can find the prompt's full blocks."""
        return self.computed >= self.num_prompt - 1

    @property
    def context_most(self) -> int:
        """Tokens that the next row may look at, its own included, if every guess under way is
        right. The last token of a task is never computed.
        """
        return min(self.known_ahead + self.drafts_ahead, self.known_max - 1)

    @property
    def num_borrowable(self) -> int:
        """Leading blocks that somebody lends it."""
        return 0 if self.borrow is None else len(self.borrow.blocks)

    def become(self, state: RunState) -> None:
        self.state = step_to(self.state, state, f"task {self.name}")

    def extended(self, num_blocks: int) -> None:
        """Note that the table has grown."""
        self.capacity += num_blocks * BLOCK_TOKENS

    def as_task(self) -> Task:
        """Give the task as a slot needs it: with all tokens that are known now."""
        if len(self.tokens) == self.known_given:
            return self.task
        return replace(self.task, generated=tuple(self.tokens[self.num_prompt :]))

    def forget_progress(self) -> None:
        """Stand as one that has computed nothing; its blocks are given back."""
        self.slot = -1
        self.holding = None
        self.capacity = 0
        self.computed = 0
        self.computed_ahead = 0
        self.known_ahead = len(self.tokens)
        self.drafts_ahead = 0
        self.prompt_logprobs = []
