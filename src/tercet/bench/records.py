"""What one request experienced, and what all of them amount to."""

from msgspec import Struct

NS_PER_MS = 1e6
NS_PER_S = 1e9


class RequestRecord(Struct, frozen=True, kw_only=True):
    """Times in nanoseconds after the start of the run; arrivals of text chunks in order."""

    scheduled_ns: int
    """When the load asked for it: with an open loop a late start counts as waiting."""
    arrivals_ns: tuple[int, ...]
    """When each chunk with text or a token arrived."""
    ended_ns: int
    prompt_tokens: int
    output_tokens: int
    error: str | None = None
    """None if the stream ended as it should."""

    @property
    def ok(self) -> bool:
        return self.error is None and self.output_tokens > 0 and bool(self.arrivals_ns)

    @property
    def ttft_ms(self) -> float:
        """Time to first token."""
        return (self.arrivals_ns[0] - self.scheduled_ns) / NS_PER_MS

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first: (latency - TTFT) / (tokens - 1)."""
        if self.output_tokens < 2:
            return None
        return (self.ended_ns - self.arrivals_ns[0]) / NS_PER_MS / (self.output_tokens - 1)

    @property
    def itl_ms(self) -> list[float]:
        """Gaps between arrivals; several tokens that arrive together are one arrival."""
        pairs = zip(self.arrivals_ns, self.arrivals_ns[1:], strict=False)
        return [(later - earlier) / NS_PER_MS for earlier, later in pairs]

    @property
    def latency_ms(self) -> float:
        return (self.ended_ns - self.scheduled_ns) / NS_PER_MS


class Objective(Struct, frozen=True, kw_only=True):
    """A service-level objective: a request is good if it meets every bound that is set (ms)."""

    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None

    def met_by(self, record: RequestRecord) -> bool:
        if not record.ok:
            return False
        tpot = record.tpot_ms
        return (
            (self.ttft is None or record.ttft_ms <= self.ttft)
            and (self.tpot is None or tpot is None or tpot <= self.tpot)
            and (self.e2el is None or record.latency_ms <= self.e2el)
        )


class Distribution(Struct, frozen=True, kw_only=True):
    """Summary of a list of milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Summary(Struct, frozen=True, kw_only=True):
    """The table that `tercet bench serve` prints and writes as JSON."""

    num_requests: int
    num_failed: int
    errors: dict[str, int]
    duration_s: float
    prompt_tokens: int
    output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    peak_concurrency: int
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    e2el_ms: Distribution | None
    objective: Objective | None = None
    goodput_requests_per_s: float | None = None
    """Requests a second that met every bound of the objective (DistServe's definition)."""


def percentile(ordered: list[float], share: float) -> float:
    """The linearly interpolated percentile of an ascending, non-empty list."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def distribution(values: list[float]) -> Distribution | None:
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        mean=sum(ordered) / len(ordered),
        p50=percentile(ordered, 0.50),
        p90=percentile(ordered, 0.90),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
    )


def summarize(
    records: list[RequestRecord],
    *,
    duration_ns: int,
    objective: Objective | None = None,
) -> Summary:
    """Everything over the whole run; latencies over the requests that ended well."""
    good = [record for record in records if record.ok]
    seconds = max(duration_ns / NS_PER_S, 1e-9)
    output = sum(record.output_tokens for record in good)
    prompt = sum(record.prompt_tokens for record in good)
    errors: dict[str, int] = {}
    for record in records:
        if not record.ok:
            reason = record.error or "no token"
            errors[reason] = errors.get(reason, 0) + 1
    met = None if objective is None else sum(objective.met_by(record) for record in records)
    return Summary(
        num_requests=len(records),
        num_failed=len(records) - len(good),
        errors=errors,
        duration_s=seconds,
        prompt_tokens=prompt,
        output_tokens=output,
        requests_per_s=len(good) / seconds,
        output_tokens_per_s=output / seconds,
        total_tokens_per_s=(output + prompt) / seconds,
        peak_concurrency=_peak(records),
        ttft_ms=distribution([record.ttft_ms for record in good]),
        tpot_ms=distribution([tpot for r in good if (tpot := r.tpot_ms) is not None]),
        itl_ms=distribution([gap for record in good for gap in record.itl_ms]),
        e2el_ms=distribution([record.latency_ms for record in good]),
        objective=objective,
        goodput_requests_per_s=None if met is None else met / seconds,
    )


def _peak(records: list[RequestRecord]) -> int:
    """Most requests that were open at one time."""
    turns = sorted(
        [(record.scheduled_ns, 1) for record in records]
        + [(record.ended_ns, -1) for record in records],
    )
    peak = now = 0
    for _, change in turns:
        now += change
        peak = max(peak, now)
    return peak
