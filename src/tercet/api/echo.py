"""A service that answers by itself: for tests of HTTP, and to measure what HTTP alone costs.

Each task's tokens are its own prompt, shifted by its choice, again and again, until `max_tokens`,
an end id or a stop id; a prompt's last piece of wisdom is thus known beforehand. Tokens come in
pieces of `per_piece`, one a turn of the event loop or one each `pause_s`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.api.service import Health, ServedModel, Sink
from tercet.base.ids import Epoch, Ids, JobId, TaskId, job_of, task_id
from tercet.jobs.job import Failure, Finish, Job, TaskOutput, TokenLogprobs

Script = Callable[[TaskId, tuple[int, ...], int], int]
"""From (task, prompt, position) to the token that comes there."""


def repeat_prompt(task: TaskId, prompt: tuple[int, ...], position: int) -> int:
    """Say the prompt again."""
    del task
    return prompt[position % len(prompt)]


@dataclass
class _Running:
    task: TaskId
    prompt: tuple[int, ...]
    job: Job
    sink: Sink
    position: int = 0
    told_prompt: bool = False


@dataclass
class EchoService:
    """Keeps what it was asked, so that a test can look."""

    served: tuple[ServedModel, ...]
    script: Script = repeat_prompt
    per_piece: int = 1
    pause_s: float = 0.0
    refusal: Failure | None = None
    """Every job is refused with it while it is there."""
    failure: Failure | None = None
    """Every task fails with it after `failure_after` tokens."""
    failure_after: int = 0
    condition: Health = field(default_factory=lambda: Health(live=True, ready=True))
    jobs: list[Job] = field(default_factory=list)
    cancelled: list[JobId] = field(default_factory=list)
    stopped: list[TaskId] = field(default_factory=list)
    jobs_kept: int = 10_000
    """Older jobs are forgotten, so that a long run does not grow."""

    def __post_init__(self) -> None:
        self._ids = Ids(Epoch(1))
        self._running: dict[TaskId, _Running] = {}
        self._turning = False

    @property
    def num_running(self) -> int:
        return len(self._running)

    def models(self) -> tuple[ServedModel, ...]:
        return self.served

    def health(self) -> Health:
        return self.condition

    def new_job_id(self) -> JobId:
        return self._ids.job()

    def submit(self, job: Job, sink: Sink) -> None:
        if len(self.jobs) >= self.jobs_kept:
            del self.jobs[: self.jobs_kept // 2]
        self.jobs.append(job)
        for index in range(job.num_tasks):
            task = task_id(job.id, index)
            if self.refusal is not None:
                sink(TaskOutput(task=task, finish=Finish.FAILED, failure=self.refusal))
                continue
            self._running[task] = _Running(task, job.prompts[index // job.n], job, sink)
        self._turn_later()

    def cancel(self, job: JobId) -> None:
        self.cancelled.append(job)
        for task in [task for task in self._running if job_of(task) == job]:
            del self._running[task]

    def stop_found(self, task: TaskId) -> None:
        self.stopped.append(task)
        self._running.pop(task, None)

    def _turn_later(self) -> None:
        if self._turning or not self._running:
            return
        self._turning = True
        loop = asyncio.get_running_loop()
        if self.pause_s:
            loop.call_later(self.pause_s, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        for running in list(self._running.values()):
            piece = self._next_piece(running)
            if piece.finish is not None:
                self._running.pop(running.task, None)
            running.sink(piece)
        self._turn_later()

    def _next_piece(self, running: _Running) -> TaskOutput:
        sampling = running.job.sampling
        if self.failure is not None and running.position >= self.failure_after:
            return TaskOutput(task=running.task, finish=Finish.FAILED, failure=self.failure)
        tokens: list[int] = []
        finish: Finish | None = None
        stop_token: int | None = None
        ends = sampling.stop_token_ids
        if not sampling.ignore_eos:
            ends = (*ends, *self._end_ids(running.job.model))
        while finish is None and len(tokens) < self.per_piece:
            token = self.script(running.task, running.prompt, running.position)
            running.position += 1
            tokens.append(token)
            if token in ends and running.position > sampling.min_tokens:
                finish, stop_token = Finish.STOP, token
            elif running.position >= sampling.max_tokens:
                finish = Finish.LENGTH
        first, running.told_prompt = not running.told_prompt, True
        num_top, num_prompt_top = sampling.logprobs, sampling.prompt_logprobs
        return TaskOutput(
            task=running.task,
            tokens=tuple(tokens),
            logprobs=None if num_top is None else tuple(_guess(t, num_top) for t in tokens),
            prompt_logprobs=(
                (None, *(_guess(t, num_prompt_top) for t in running.prompt[1:]))
                if first and num_prompt_top is not None
                else None
            ),
            cached_tokens=16 * ((len(running.prompt) - 1) // 16) if first else None,
            finish=finish,
            stop_token=stop_token,
        )

    def _end_ids(self, name: str) -> tuple[int, ...]:
        return next(model.end_ids for model in self.served if name in model.names)


def _guess(token: int, num_top: int) -> TokenLogprobs:
    """Give the token half the probability, its neighbours a half of the rest each."""
    top = tuple((token ^ rank, -0.7 * (rank + 1)) for rank in range(num_top))
    return TokenLogprobs(token, -0.7, 1, top)
