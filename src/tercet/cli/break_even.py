"""From how many tokens on fetching beats computing, by what both were measured to take."""

from msgspec import Struct

from tercet.base.ids import BLOCK_TOKENS
from tercet.messages.plan import StepCost
from tercet.task_executor.weighing import saved_ns


class Computing(Struct, frozen=True, kw_only=True):
    """What a prefill takes, and what it leaves."""

    cost: StepCost
    step_ns_max: int
    bytes_per_token: float
    context_max: int

    def saved_ns(self, tokens: int) -> float:
        """Give what is saved where so many leading tokens need not be computed and one does."""
        return saved_ns(
            self.cost, begun=0, ends=[tokens], known=tokens + 1, step_ns_max=self.step_ns_max
        )[0]


class Way(Struct, frozen=True, kw_only=True):
    """What fetching from one source takes."""

    source: str
    latency_s: float
    bytes_per_s: float
    fetches: int = 0
    bytes: int = 0

    def fetch_ns(self, size: float) -> float:
        """Give what so many bytes take."""
        moving = size / self.bytes_per_s if self.bytes_per_s else 0.0
        return 1e9 * (self.latency_s + moving)


def break_even(way: Way, computing: Computing) -> int | None:
    """Give the least whole blocks of tokens that are fetched faster than computed, if any are
    within the context.
    """
    for tokens in range(BLOCK_TOKENS, computing.context_max, BLOCK_TOKENS):
        if way.fetch_ns(tokens * computing.bytes_per_token) < computing.saved_ns(tokens):
            return tokens
    return None
