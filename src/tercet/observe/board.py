"""What is counted in one front: plain numbers, written by `Metrics`, read at scrape."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tercet.messages.wire import Load
from tercet.observe.instruments import Counts, Histogram
from tercet.observe.transfers import TransferCounts

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_CHOICES = (1, 2, 5, 10, 20, 50, 100)

HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("From the request to its first token.", _SECONDS),
    "inter_token_latency_seconds": ("Between a choice's tokens.", _SECONDS),
    "request_time_per_output_token_seconds": ("Mean of a request, first token apart.", _SECONDS),
    "e2e_request_latency_seconds": ("From the request to the end of its answer.", _SECONDS),
    "request_queue_time_seconds": ("From the request to its first step.", _SECONDS),
    "request_prompt_tokens": ("Prompt tokens of a request.", _TOKENS),
    "request_generation_tokens": ("New tokens of a request.", _TOKENS),
    "request_params_n": ("The n of a request.", _CHOICES),
    "request_params_max_tokens": ("The max_tokens of a request.", _TOKENS),
}


@dataclass(frozen=True)
class ExecutorLoad:
    """How busy an executor is, as the front knows it."""

    model: str
    executor: int
    load: Load


class ModelCounts:
    """What is counted for one model."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self.successes = Counts()
        self.prompt_tokens = 0
        self.queried_tokens = 0
        """Prompt tokens of every task: what the prefix cache was asked for."""
        self.cached_tokens = 0
        """Those of them that it had."""
        self.generation_tokens = 0
        self.open_tasks = 0
        self.started_tasks = 0
        """Open tasks that have a token."""


class Board:
    """All counters of one front."""

    def __init__(self, loads: Callable[[], Iterable[ExecutorLoad]]) -> None:
        self.models: dict[str, ModelCounts] = {}
        self.facts = Counts()
        """By (name, detail): what happened how often."""
        self.sums = Counts()
        """By (name, value's name): sums of the facts' numbers."""
        self.responses = Counts()
        """By (route, status)."""
        self.transfers = TransferCounts()
        self.loads = loads

    def model(self, name: str) -> ModelCounts:
        """Give the counters of a model, made at its first mention."""
        counts = self.models.get(name)
        if counts is None:
            counts = self.models[name] = ModelCounts()
        return counts
