"""The seam between HTTP and whatever computes: six methods, called in the event loop only.

The real one is the front's job executor (`runtime`); `api.echo` is the one for tests and for
measuring HTTP alone. Both pass the same contract test.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tercet.base.ids import JobId, TaskId
from tercet.base.model import NEUTRAL, SamplingDefaults
from tercet.jobs.job import Job, TaskOutput
from tercet.text.codec import Codec

Sink = Callable[[TaskOutput], None]
"""Takes the next piece of any task of one job; returns at once and never raises."""


class Template(Protocol):
    """What HTTP needs of `text.chat.ChatTemplate`."""

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """Give the prompt of a chat; `Invalid` where the template refuses the messages."""
        ...


@dataclass(frozen=True)
class ServedModel:
    """A model that requests can name, with what is needed to make and to read its tokens."""

    names: tuple[str, ...]
    """What clients may call it; `Job.model` is always the first."""
    created: int
    """Unix time, in seconds, for `/v1/models`."""
    context_max: int
    """Prompt and new tokens together never exceed it."""
    vocab: int
    """Token ids are in [0, vocab)."""
    codec: Codec
    template: Template | None
    """None: the model has no chat template, and chat is refused in a sentence."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end a text unless `ignore_eos`: those of the model and of its tokenizer."""
    defaults: SamplingDefaults = NEUTRAL
    """What is taken where a request is silent."""


@dataclass(frozen=True)
class Health:
    """Three answers for three probes, and a sentence for whoever asks why."""

    live: bool
    """The processes make progress; False asks for a restart."""
    ready: bool
    """A model can really answer now; False takes this front out of rotation."""
    reason: str = ""
    """Why not, in a sentence; empty when both hold."""
    details: tuple[tuple[str, str], ...] = ()
    """More for `/health`, as names and short strings."""


class Service(Protocol):
    """What HTTP needs from the house. No method blocks and none raises."""

    def models(self) -> tuple[ServedModel, ...]:
        """Give the models that are served; cheap, asked for with every request."""
        ...

    def health(self) -> Health:
        """Tell what the probes shall say now."""
        ...

    def new_job_id(self) -> JobId:
        """Give an id that no job of this house had before."""
        ...

    def submit(self, job: Job, sink: Sink) -> None:
        """Begin a job; every task's pieces go to the sink, in order, exactly one with `finish`.

        The sink may be called before `submit` returns (a refusal: `Finish.FAILED` with
        `overloaded`, `no_executor` or `shutting_down` for every task).
        """
        ...

    def cancel(self, job: JobId) -> None:
        """End what is left of the job; later pieces, if any, are ignored by the sink.

        A job that is over or unknown is ignored.
        """
        ...

    def stop_found(self, task: TaskId) -> None:
        """A stop string was found in the task's text: compute no more of it.

        The rest of the job goes on. Later pieces of the task, its end too, are ignored by the sink.
        """
        ...
