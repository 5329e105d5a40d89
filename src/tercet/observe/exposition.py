"""Shows the counters as Prometheus's metric families, under `tercet:` and vLLM's names alike.

Dashboards and autoscalers read `vllm:*` with the labels `model_name` and `engine`; the same
numbers stand under `tercet:*`, with a few more that vLLM has no name for. `engine` is the number
of an executor where a number is an executor's own, and `front` for what waits in the front.
"""

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tercet.observe.board import HISTOGRAMS, Board, ExecutorLoad
from tercet.observe.transfers import FAMILIES

_PREFIXES = ("vllm:", "tercet:")
_LABELS = ("model_name", "engine")
_FRONT = "front"
_ALL = "0"
"""The `engine` of what is counted over all executors, as a vLLM with one engine shows it."""


class Exposer(Collector):
    """Reads a board at every scrape."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> list[Metric]:
        """Give nothing: the names are not checked against other collectors'."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give every family."""
        loads = list(self._board.loads())
        for prefix in _PREFIXES:
            yield from self._gauges(prefix, loads)
            yield from self._counters(prefix)
            yield from self._histograms(prefix)
        yield from self._transfers()
        yield from self._facts()

    def _gauges(self, prefix: str, loads: list[ExecutorLoad]) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            f"{prefix}num_requests_running", "Tasks that are computed.", labels=_LABELS
        )
        waiting = GaugeMetricFamily(
            f"{prefix}num_requests_waiting", "Tasks that wait.", labels=_LABELS
        )
        usage = GaugeMetricFamily(
            f"{prefix}kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", labels=_LABELS
        )
        placed: dict[str, int] = {}
        for entry in loads:
            load, labels = entry.load, (entry.model, str(entry.executor))
            running.add_metric(labels, load.running)
            waiting.add_metric(labels, load.waiting)
            total = load.blocks_total
            usage.add_metric(labels, 1 - load.blocks_free / total if total else 0.0)
            placed[entry.model] = placed.get(entry.model, 0) + load.running + load.waiting
        for name, counts in self._board.models.items():
            if name not in placed:
                running.add_metric((name, _FRONT), counts.started_tasks)
            # Loads are as old as the last step: what they do not hold waits in the front.
            known = placed.get(name, counts.started_tasks)
            waiting.add_metric((name, _FRONT), max(0, counts.open_tasks - known))
        yield running
        yield waiting
        yield usage

    def _counters(self, prefix: str) -> Iterator[Metric]:
        rows: dict[str, tuple[str, CounterMetricFamily]] = {}

        def add(name: str, story: str, model: str, value: float) -> None:
            if name not in rows:
                rows[name] = (name, CounterMetricFamily(f"{prefix}{name}", story, labels=_LABELS))
            rows[name][1].add_metric((model, _ALL), value)

        success = CounterMetricFamily(
            f"{prefix}request_success",
            "Requests that ended, by reason.",
            labels=(*_LABELS, "finished_reason"),
        )
        preemptions = sum(
            count for (name, _), count in self._board.facts.values.items() if name == _PREEMPTED
        )
        for model, counts in self._board.models.items():
            add("prompt_tokens", "Prompt tokens of requests.", model, counts.prompt_tokens)
            add("generation_tokens", "New tokens.", model, counts.generation_tokens)
            add("prefix_cache_queries", "Prompt tokens looked up.", model, counts.queried_tokens)
            add("prefix_cache_hits", "Prompt tokens found.", model, counts.cached_tokens)
            add("num_preemptions", "Tasks put back to make room.", model, preemptions)
            for name, (story, part) in _DRAFTS.items():
                add(name, story, model, self._board.sums.values.get(("step.done", part), 0.0))
            for (reason,), value in counts.successes.values.items():
                success.add_metric((model, _ALL, reason), value)
        for _, family in rows.values():
            yield family
        yield success

    def _histograms(self, prefix: str) -> Iterator[Metric]:
        for name, (story, _) in HISTOGRAMS.items():
            family = HistogramMetricFamily(f"{prefix}{name}", story, labels=_LABELS)
            for model, counts in self._board.models.items():
                histogram = counts.histograms[name]
                family.add_metric((model, _ALL), histogram.buckets(), histogram.total)
            yield family

    def _transfers(self) -> Iterator[Metric]:
        for name, (story, names) in FAMILIES.items():
            family = CounterMetricFamily(f"tercet:{name}", story, labels=names)
            for labels, value in self._board.transfers.families[name].values.items():
                family.add_metric(labels, value)
            yield family
        share = GaugeMetricFamily(
            "tercet:pool_share", "A host's share of the pool, by quantity.", labels=("host", "of")
        )
        for host, values in self._board.transfers.shares.items():
            for of, value in values.items():
                share.add_metric((host, of), value)
        yield share

    def _facts(self) -> Iterator[Metric]:
        facts = CounterMetricFamily(
            "tercet:facts", "What the machines told, by name.", labels=("fact", "detail")
        )
        for labels, count in self._board.facts.values.items():
            facts.add_metric(labels, count)
        sums = CounterMetricFamily(
            "tercet:fact_values", "Sums of the facts' numbers.", labels=("fact", "value")
        )
        for labels, total in self._board.sums.values.items():
            sums.add_metric(labels, total)
        responses = CounterMetricFamily(
            "tercet:http_responses", "Answers by route and status.", labels=("route", "status")
        )
        for labels, count in self._board.responses.values.items():
            responses.add_metric(labels, count)
        yield facts
        yield sums
        yield responses


_PREEMPTED = "task.preempted"
_DRAFTS = {
    "spec_decode_num_drafts": ("Times that next tokens were guessed and verified.", "drafts"),
    "spec_decode_num_draft_tokens": ("Guessed tokens that were verified.", "drafted"),
    "spec_decode_num_accepted_tokens": ("Guessed tokens that were right.", "accepted"),
}
"""vLLM's names: what is told, and which number of `step.done` it is."""
