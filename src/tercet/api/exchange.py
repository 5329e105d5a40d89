"""One job and its client: pieces come in through the sink, deltas of text go out, either may leave.

    service ──sink(piece)──▶ [ready pieces] ──take──▶ choices ──▶ deltas ──▶ answer
    client  ──http.disconnect──▶ watcher ──▶ service.cancel

Everything that is ready at once is taken at once, so a loop that is behind writes fewer, larger
pieces instead of falling further behind. A client that lets too many pieces pile up (many choices,
read too slowly) loses its job: the queue is bounded.
"""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from tercet.api.ask import Ask
from tercet.api.choice import Delta, open_choices
from tercet.api.outcomes import Ended, ended
from tercet.api.service import Service
from tercet.base.ids import index_of, task_id
from tercet.jobs.job import Finish, TaskOutput
from tercet.observe.metrics import Metrics, RequestSize


class Exchange:
    """A running job. Use as a context: leaving it cancels what is not over."""

    def __init__(
        self,
        ask: Ask,
        service: Service,
        receive: Receive,
        *,
        metrics: Metrics,
        pieces_max: int,
    ) -> None:
        self.ask = ask
        self._pieces_max = pieces_max
        self._failure: Ended | None = None
        self._service = service
        self._receive = receive
        self._ready: list[TaskOutput] = []
        self._waiter: asyncio.Future[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        """Nobody takes pieces any more."""
        self.gone = False
        """The client went away: nothing that is written reaches anybody."""
        job = ask.job
        self.choices = open_choices(ask)
        self._open = len(self.choices)
        size = RequestSize(
            prompt_tokens=ask.prompt_tokens,
            n=job.n,
            num_prompts=len(job.prompts),
            max_tokens=job.sampling.max_tokens,
        )
        self._meter = metrics.meter(job.model, size)

    def __enter__(self) -> Self:
        self._service.submit(self.ask.job, self._put)
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        self._meter.close(self._reason())
        if self._open and not self.gone:
            self._service.cancel(self.ask.job.id)
        if self._watcher is not None and (self.gone or error is not None):
            self._watcher.cancel()
        # Otherwise the watcher ends by itself when the response is complete.

    @property
    def over(self) -> bool:
        """Every choice has its finish."""
        return self._open == 0

    async def next(self) -> list[Delta]:
        """Wait for pieces and give what they add, at most one delta a choice; empty: gone.

        Raises `Ended` when the house could not go on with one of the tasks; what came before has
        been given.
        """
        if not self._ready and not self.gone and self._failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        if self.gone:
            return []
        pieces, self._ready = self._ready, []
        deltas = self._deltas(pieces)
        if self._failure is not None and not deltas:
            raise self._failure
        return deltas

    def _deltas(self, pieces: list[TaskOutput]) -> list[Delta]:
        deltas: dict[int, Delta] = {}
        for piece in pieces:
            index = index_of(piece.task)
            choice = self.choices[index]
            if choice.finish is not None:
                continue  # overrun after a stop string was found
            if piece.finish is Finish.FAILED or piece.finish is Finish.CANCELLED:
                self._failure = ended(piece)
                break
            delta = deltas.get(index)
            if delta is None:
                delta = deltas[index] = Delta(index)
            num_before = choice.num_tokens
            choice.push(piece, delta)
            self._meter.gained(index, choice.num_tokens - num_before)
            if choice.finish is not None:
                self._open -= 1
                self._meter.ended(index, choice.cached_tokens)
                if piece.finish is None:
                    self._service.stop_found(task_id(self.ask.job.id, index))
        return list(deltas.values())

    def _reason(self) -> str:
        if self._open:
            return "abort" if self.gone else "error"
        return self.choices[-1].finish or "error"

    def _put(self, piece: TaskOutput) -> None:
        if self._closed:
            return
        self._ready.append(piece)
        if len(self._ready) > self._pieces_max:
            # The machine is in the middle of its turn: tell it in the next one.
            self._closed = True
            asyncio.get_running_loop().call_soon(self._service.cancel, self.ask.job.id)
            self._failure = Ended(503, "The client reads too slowly.", code="client_too_slow")
            self._ready.clear()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        if self._open:
            self.gone = self._closed = True
            self._service.cancel(self.ask.job.id)
            self._ready.clear()
            self._wake()
