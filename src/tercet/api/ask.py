"""What a client asked for, after every check: a job and how its answer shall look."""

from dataclasses import dataclass

from tercet.api.sampling import Delivery
from tercet.api.service import ServedModel
from tercet.jobs.job import Job


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A valid request for text."""

    chat: bool
    """Which of the two endpoints was called."""
    job: Job
    model: ServedModel
    name: str
    """The model as the client called it; the answer repeats it."""
    delivery: Delivery
    echo: tuple[str, ...] | None = None
    """The text of every prompt, to be repeated before its answer; None: no echo."""
    discard: bool = False
    """`max_tokens: 0` with `echo`: the prompt is scored, the one token computed is dropped."""

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.job.prompts))
