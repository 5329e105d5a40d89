"""A counter and a histogram as plain numbers: nothing is locked, nothing is looked up by label.

One thread (the event loop) writes and reads them; labels are keys of the dicts that hold them.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values by upper bound, with their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Not cumulative; the last is for values beyond every bound."""
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Give (upper bound, values up to it), as Prometheus wants them."""
        rows: list[tuple[str, float]] = []
        sum_so_far = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            sum_so_far += count
            rows.append((bound, sum_so_far))
        return rows


class Counts:
    """Counters that differ in the values of their labels; bounded, for labels come from outside."""

    __slots__ = ("_limit", "values")

    def __init__(self, *, limit: int = 1000) -> None:
        self._limit = limit
        self.values: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], value: float = 1) -> None:
        """Add to the counter of these label values; beyond the limit, to the one named "other"."""
        values = self.values
        if labels not in values and len(values) >= self._limit:
            labels = ("other",) * len(labels)
        values[labels] = values.get(labels, 0) + value
