"""Meters, facts and histograms."""

from tercet.messages.effects import Fact
from tercet.observe.board import Board
from tercet.observe.instruments import Counts, Histogram
from tercet.observe.metrics import Metrics, RequestSize


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def board_of(metrics) -> Board:
    return metrics._board


def size(**changes):
    return RequestSize(
        **{"prompt_tokens": 10, "n": 1, "num_prompts": 1, "max_tokens": 8, **changes}
    )


def test_a_histogram_counts_up_to_and_including_a_bound():
    histogram = Histogram((1, 2, 4))
    for value in (0.5, 1, 1.5, 4, 9):
        histogram.observe(value)
    histogram.observe(2, times=3)
    assert histogram.buckets() == [("1", 2), ("2", 6), ("4", 7), ("+Inf", 8)]
    assert histogram.total == 22


def test_counts_are_bounded():
    counts = Counts(limit=2)
    for name in "abcda":
        counts.add((name, "x"))
    assert counts.values == {("a", "x"): 2, ("b", "x"): 1, ("other", "other"): 2}


def test_a_meter_measures_a_request():
    clock = Clock()
    metrics = Metrics(clock=clock)
    meter = metrics.meter("m", size())
    model = board_of(metrics).model("m")
    assert (model.open_tasks, model.started_tasks) == (1, 0)
    clock.now += 2
    meter.gained(0, 1)
    assert (model.open_tasks, model.started_tasks) == (1, 1)
    clock.now += 1
    meter.gained(0, 4)
    meter.gained(0, 0)
    meter.ended(0, 8)
    assert (model.open_tasks, model.started_tasks) == (0, 0)
    meter.close("length")
    assert model.histograms["time_to_first_token_seconds"].total == 2
    assert model.histograms["inter_token_latency_seconds"].total == 1
    assert sum(model.histograms["inter_token_latency_seconds"].counts) == 4
    assert model.histograms["request_time_per_output_token_seconds"].total == 0.25
    assert model.histograms["e2e_request_latency_seconds"].total == 3
    assert model.cached_tokens == 8
    assert model.successes.values == {("length",): 1}


def test_a_request_that_is_cut_short_leaves_no_gauge_behind():
    metrics = Metrics(clock=Clock())
    model = board_of(metrics).model("m")
    for started in range(4):
        meter = metrics.meter("m", size(n=3))
        for choice in range(started):
            meter.gained(choice, 1)
        if started == 3:
            meter.ended(1, 0)
        meter.close("abort")
        assert (model.open_tasks, model.started_tasks) == (0, 0)


def test_facts_are_counted_and_summed():
    metrics = Metrics()
    for queued_s in (0.5, 1.5):
        metrics.on_fact(
            Fact(
                name="job.ended",
                values=(("queued_s", queued_s), ("duration_s", 2.0)),
                labels=(("model", "m"), ("finish", "stop")),
            )
        )
    metrics.on_fact(Fact(name="task.preempted"))
    board = board_of(metrics)
    assert board.facts.values == {("job.ended", "stop"): 2, ("task.preempted", ""): 1}
    assert board.sums.values[("job.ended", "duration_s")] == 4
    assert board.model("m").histograms["request_queue_time_seconds"].total == 2
    text = metrics.exposition().decode()
    assert 'tercet:facts_total{detail="stop",fact="job.ended"} 2.0' in text
    assert 'vllm:num_preemptions_total{engine="0",model_name="m"} 1.0' in text


def test_guesses_are_shown_under_the_names_that_dashboards_know():
    metrics = Metrics()
    metrics.serve(["m"])
    values = (("tokens", 5.0), ("drafts", 1.0), ("drafted", 6.0), ("accepted", 4.0))
    metrics.on_fact(Fact(name="step.done", values=values))
    metrics.on_fact(Fact(name="step.done", values=(("tokens", 1.0),)))
    shown = metrics.exposition().decode()
    for name, value in (("drafts", 1), ("draft_tokens", 6), ("accepted_tokens", 4)):
        for prefix in ("vllm", "tercet"):
            line = f'{prefix}:spec_decode_num_{name}_total{{engine="0",model_name="m"}} {value}.0'
            assert line in shown
