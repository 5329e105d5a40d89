"""What the front tells to be counted, request by request, and what machines tell by `Fact`s.

Requests are metered where their text leaves (`Meter`); executors' loads are asked for at scrape.
Nothing of Prometheus's library is on the hot path.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from tercet.messages.effects import Fact
from tercet.observe.board import Board, ExecutorLoad, ModelCounts
from tercet.observe.exposition import Exposer
from tercet.observe.transfers import SHARE

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What is known of a request before it runs."""

    prompt_tokens: int
    n: int
    num_prompts: int
    max_tokens: int


class Metrics:
    """The counters of one front; `meter` begins a request, `on_fact` takes what machines tell."""

    def __init__(
        self,
        *,
        loads: Callable[[], Iterable[ExecutorLoad]] = tuple,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._board = Board(loads)
        self._clock = clock
        self._registry = CollectorRegistry()
        self._registry.register(Exposer(self._board))
        ProcessCollector(registry=self._registry)

    def serve(self, names: Iterable[str]) -> None:
        """Show these models from now on, before their first request too."""
        for name in names:
            self._board.model(name)

    def meter(self, model: str, size: RequestSize) -> "Meter":
        """Begin to meter a request that is about to be submitted."""
        counts = self._board.model(model)
        counts.open_tasks += size.num_prompts * size.n
        counts.prompt_tokens += size.prompt_tokens
        counts.queried_tokens += size.prompt_tokens * size.n
        histograms = counts.histograms
        histograms["request_prompt_tokens"].observe(size.prompt_tokens)
        histograms["request_params_n"].observe(size.n)
        histograms["request_params_max_tokens"].observe(size.max_tokens)
        return Meter(counts, self._clock, tasks=size.num_prompts * size.n)

    def on_fact(self, fact: Fact, *, host: str = "") -> None:
        """Count what a machine tells; `host`: whose agent does."""
        if fact.name == SHARE:
            self._board.transfers.standing(fact, host)
            return
        if fact.name.startswith("cache."):
            return  # how things stand, not what happened: sums of it say nothing
        labels = dict(fact.labels)
        detail = labels.get("finish") or labels.get("code") or labels.get("reason") or ""
        self._board.facts.add((fact.name, detail))
        for name, value in fact.values:
            self._board.sums.add((fact.name, name), value)
        self._board.transfers.on_fact(fact)
        if fact.name == "job.ended":
            queued_s = dict(fact.values).get("queued_s")
            if queued_s is not None:
                model = self._board.model(labels.get("model", ""))
                model.histograms["request_queue_time_seconds"].observe(queued_s)

    def transfers(self) -> dict[str, dict[str, float]]:
        """Give what moved between executors, hosts and the pool."""
        return self._board.transfers.picture()

    def shares(self) -> dict[str, dict[str, float]]:
        """Give what hosts last said of their shares of the pool."""
        return {host: dict(share) for host, share in self._board.transfers.shares.items()}

    def responded(self, route: str, status: int) -> None:
        """Count a response; the route is one of ours, or `other`."""
        self._board.responses.add((route, str(status)))

    def exposition(self) -> bytes:
        """Give everything in Prometheus's text form."""
        return generate_latest(self._registry)


class Meter:
    """One request's numbers; `close` exactly once, whatever became of it."""

    __slots__ = ("_began", "_clock", "_counts", "_first", "_last", "_num_open", "_num_tokens")

    def __init__(self, counts: ModelCounts, clock: Callable[[], float], *, tasks: int) -> None:
        self._counts = counts
        self._clock = clock
        self._began = clock()
        self._first = 0.0
        self._last = [0.0] * tasks
        """When each choice gained its last token; 0 before the first, and after the end."""
        self._num_open = tasks
        self._num_tokens = 0

    def gained(self, choice: int, num_tokens: int) -> None:
        """Take note that a choice gained tokens just now."""
        if not num_tokens:
            return
        now = self._clock()
        counts = self._counts
        last = self._last[choice]
        self._last[choice] = now
        self._num_tokens += num_tokens
        counts.generation_tokens += num_tokens
        if last:
            gap = (now - last) / num_tokens
            counts.histograms["inter_token_latency_seconds"].observe(gap, num_tokens)
            return
        counts.started_tasks += 1
        if not self._first:
            self._first = now
            counts.histograms["time_to_first_token_seconds"].observe(now - self._began)

    def ended(self, choice: int, cached_tokens: int) -> None:
        """Take note that a choice has its finish."""
        self._end(choice)
        self._counts.cached_tokens += cached_tokens

    def close(self, reason: str) -> None:
        """End the request: `stop`, `length`, `abort` (the client left) or `error`."""
        now = self._clock()
        counts = self._counts
        for choice, last in enumerate(self._last):
            if last:
                self._end(choice)
        counts.open_tasks -= self._num_open
        self._num_open = 0
        counts.successes.add((reason,))
        counts.histograms["e2e_request_latency_seconds"].observe(now - self._began)
        counts.histograms["request_generation_tokens"].observe(self._num_tokens)
        num_choices = len(self._last)
        if self._first and self._num_tokens > num_choices:
            mean = (now - self._first) * num_choices / (self._num_tokens - num_choices)
            counts.histograms["request_time_per_output_token_seconds"].observe(mean)

    def _end(self, choice: int) -> None:
        self._num_open -= 1
        self._counts.open_tasks -= 1
        if self._last[choice]:
            self._counts.started_tasks -= 1
            self._last[choice] = 0.0
