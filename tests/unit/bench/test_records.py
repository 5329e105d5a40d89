"""Percentiles, goodput and rates from hand-made records."""

import pytest

from tercet.bench.records import Objective, RequestRecord, distribution, percentile, summarize

MS = 1_000_000


def record(
    *, at: int = 0, arrivals: tuple[int, ...] = (10, 20, 30), error: str | None = None
) -> RequestRecord:
    return RequestRecord(
        scheduled_ns=at * MS,
        arrivals_ns=tuple(a * MS for a in arrivals),
        ended_ns=(arrivals[-1] if arrivals else at + 5) * MS,
        prompt_tokens=7,
        output_tokens=len(arrivals),
        error=error,
    )


def test_latencies_follow_their_definitions() -> None:
    one = record(at=4, arrivals=(10, 20, 40))
    assert one.ttft_ms == 6
    assert one.tpot_ms == 15
    assert one.itl_ms == [10, 20]
    assert one.latency_ms == 36
    assert record(arrivals=(10,)).tpot_ms is None


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 2.5), (1, 4), (0.9, 3.7)])
def test_percentiles_interpolate(share: float, expected: float) -> None:
    assert percentile([1, 2, 3, 4], share) == pytest.approx(expected)


def test_an_empty_distribution_is_absent() -> None:
    assert distribution([]) is None


def test_goodput_counts_only_requests_that_meet_every_bound() -> None:
    records = [
        record(arrivals=(10, 20, 30)),
        record(arrivals=(60, 70, 80)),
        record(arrivals=(10, 60, 110)),
        record(error="HTTP 503"),
    ]
    summary = summarize(records, duration_ns=2_000 * MS, objective=Objective(ttft=50, tpot=20))
    assert summary.goodput_requests_per_s == pytest.approx(0.5)
    assert summary.requests_per_s == pytest.approx(1.5)
    assert summary.num_failed == 1
    assert summary.errors == {"HTTP 503": 1}
    assert summary.output_tokens == 9
    assert summary.total_tokens_per_s == pytest.approx(15)


def test_a_stream_without_a_token_has_failed() -> None:
    summary = summarize([record(arrivals=())], duration_ns=MS)
    assert summary.num_failed == 1
    assert summary.errors == {"no token": 1}
    assert summary.ttft_ms is None


def test_peak_concurrency_counts_open_requests() -> None:
    records = [
        record(at=0, arrivals=(10,)),
        record(at=5, arrivals=(15,)),
        record(at=12, arrivals=(20,)),
    ]
    assert summarize(records, duration_ns=MS).peak_concurrency == 2
