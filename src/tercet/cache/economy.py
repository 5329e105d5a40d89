"""Populate or recompute: what bytes from elsewhere cost, learned from what they took.

    populate   max(fetch, queue) + prefill of the rest
               fetch = latency + (before + bytes) x per byte, of each source that has a part
    recompute  queue + prefill of the whole

A source is a word: `dram`, `ssd`, in upper case on another host, `peer:<host>`. What fetches took
is learned by their sizes: a mean for each power of four, and a line through the means.

    time |              x        small fetches tell of the latency, large ones of the bandwidth;
         |       x . '           each mean follows its latest fetches, and one that was not
         | x . '                 renewed for long counts for less
         +------------------ size

`before` is what the same source is sending already. What nobody tried is believed to be good, but
tried with little at first; what turned out bad is tried again now and then, when the loss is small
beside all that was spent since. Both ends of the choice may change while a server runs.
"""

from collections.abc import Sequence
from math import sqrt

from msgspec import Struct

SOURCES_MAX = 64
"""Beyond these the one that was fetched from longest ago is forgotten."""
PRIOR_LATENCY_NS = 150_000.0
PRIOR_NS_PER_BYTE = 0.1
"""Of what nobody tried: 150 us, 10 GB/s."""
FASTEST_NS_PER_BYTE = 0.05
"""No source is believed to be faster: sizes that lie close together tell little of the slope."""
TRY_BYTES = 32 << 20
"""At most so much is fetched from a source that nobody tried."""
CLASS_BITS = 2
"""Sizes of one class are within a factor of two to the power of this."""
SMALL_CLASS = 18 // CLASS_BITS
"""Fetches up to here tell of the latency, if there are no others."""
_WEIGHT = 0.25
"""What the newest fetch counts for in its mean."""
_RATIO_MAX = 4.0
"""One fetch moves a mean no further than one so much slower or faster would, except a failure: for
that a task has waited in vain."""
_SURE = 3
"""From so many fetches on."""
_STALE = 0.97
"""A mean's weight, for each fetch of other sizes since its last."""
_OLD = 100
"""After so many it is forgotten."""
_SURPRISE = 2.0
_SURPRISE_AGE = 50
"""A fetch so much slower or faster than expected speaks against what other sizes told: it makes
them so much older."""
_EXPLORE_SHARE = 0.02
"""Of the time that decisions cost may be lost to trying again what was bad."""


class SourceStanding(Struct, frozen=True, kw_only=True):
    """What was learned of one source."""

    source: str
    latency_ns: float
    bytes_per_s: float
    fetches: int
    bytes: int
    bytes_under_way: int


class Trip:
    """One fetch under way, from `Economy.begin` to `end`: bytes by source, and what each source had
    sent before it began.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: dict[str, tuple[int, int]]) -> None:
        self.parts = parts


class _Mean:
    """Of the fetches of one class of sizes, geometric: one that took ten times as long is no more
    than one that took a tenth.
    """

    __slots__ = ("count", "size", "time_ns", "turn")

    def __init__(self) -> None:
        self.count = 0
        self.size = 1.0
        self.time_ns = 1.0
        self.turn = 0

    def learn(self, size: int, time_ns: float, *, good: bool) -> None:
        self.count += 1
        weight = max(1 / self.count, _WEIGHT)
        if good and self.count > _SURE:
            expected = self.time_ns * size / self.size
            low, high = min(expected, self.time_ns), max(expected, self.time_ns)
            time_ns = min(max(time_ns, low / _RATIO_MAX), high * _RATIO_MAX)
        self.size *= (size / self.size) ** weight
        self.time_ns *= (time_ns / self.time_ns) ** weight


class _Source:
    """A line through the means of one source, and what is on its way from it."""

    __slots__ = ("latency_ns", "means", "ns_per_byte", "num_fetches", "sent", "under_way")

    def __init__(self) -> None:
        self.latency_ns = PRIOR_LATENCY_NS
        self.ns_per_byte = PRIOR_NS_PER_BYTE
        self.means: dict[int, _Mean] = {}
        self.num_fetches = 0
        self.sent = 0
        self.under_way = 0

    def time_ns(self, size: float) -> float:
        return self.latency_ns + size * self.ns_per_byte

    def learn(self, size: int, time_ns: float, *, good: bool) -> None:
        self.num_fetches += 1
        kind = size.bit_length() // CLASS_BITS
        mean = self.means.setdefault(kind, _Mean())
        expected = self.time_ns(size)
        surprise = not expected / _SURPRISE <= time_ns <= expected * _SURPRISE
        mean.learn(size, time_ns, good=good)
        mean.turn = self.num_fetches
        for other in list(self.means):
            one = self.means[other]
            if one is not mean and surprise:
                one.turn -= _SURPRISE_AGE
            if self.num_fetches - one.turn > _OLD:
                del self.means[other]
        if len(self.means) == 1:
            self._draw_through(mean, small=kind <= SMALL_CLASS)
        else:
            self._draw()

    def _draw_through(self, mean: _Mean, *, small: bool) -> None:
        """One mean tells of one of the two; the other is believed as before."""
        if small:
            self.ns_per_byte = PRIOR_NS_PER_BYTE
            self.latency_ns = max(0.0, mean.time_ns - mean.size * self.ns_per_byte)
        else:
            self.latency_ns = min(PRIOR_LATENCY_NS, mean.time_ns / 2)
            per_byte = (mean.time_ns - self.latency_ns) / mean.size
            self.ns_per_byte = max(per_byte, FASTEST_NS_PER_BYTE)

    def _draw(self) -> None:
        """The line with the least relative errors, neither part below zero."""
        ones = sizes = squares = times = products = 0.0
        for mean in self.means.values():
            age = self.num_fetches - mean.turn
            weight = sqrt(min(mean.count, 1 / _WEIGHT)) * _STALE**age / mean.time_ns**2
            ones += weight
            sizes += weight * mean.size
            squares += weight * mean.size * mean.size
            times += weight * mean.time_ns
            products += weight * mean.size * mean.time_ns
        scale = ones * squares - sizes * sizes
        if scale <= 1e-9 * ones * squares:
            self.latency_ns, self.ns_per_byte = 0.0, times / sizes
            return
        latency = (squares * times - sizes * products) / scale
        per_byte = (ones * products - sizes * times) / scale
        if latency < 0:
            latency, per_byte = 0.0, products / squares
        elif per_byte < FASTEST_NS_PER_BYTE:
            per_byte = FASTEST_NS_PER_BYTE
            latency = max(0.0, (times - per_byte * sizes) / ones)
        self.latency_ns, self.ns_per_byte = latency, per_byte


_UNTRIED = _Source()


class Economy:
    """Learns from fetches; decides how much of what could be had is worth its way."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._allowance_ns = 0.0
        """Time that may be lost to trying again what was bad."""

    # what fetches took

    def begin(self, pieces: Sequence[tuple[str, int]]) -> Trip:
        """Take note of a fetch that begins: (source, bytes) of each of its pieces."""
        parts: dict[str, tuple[int, int]] = {}
        for name, size in pieces:
            source = self._of(name)
            if source is not None and size > 0:
                had = parts.get(name, (0, source.sent))
                parts[name] = had[0] + size, had[1]
                source.under_way += size
        return Trip(parts)

    def end(self, trip: Trip, duration_ns: int, *, good: bool = True) -> None:
        """Take note of its end. Of one that failed the time is learned only if it is long: so who
        is silent is believed to be slow, and who refuses at once is not believed to be fast.
        """
        parts, trip.parts = trip.parts, {}
        expected: dict[str, float] = {}
        effective: dict[str, int] = {}
        for name, (size, sent) in parts.items():
            source = self._sources[name]
            source.under_way -= size
            source.sent += size
            effective[name] = source.sent - sent
            expected[name] = source.time_ns(effective[name])
        whole = sum(expected.values())
        if duration_ns <= 0 or not whole or not (good or duration_ns > whole):
            return
        for name, size in effective.items():
            self._sources[name].learn(size, duration_ns * expected[name] / whole, good=good)

    def learn(self, source: str, *, size: int, duration_ns: int) -> None:
        """Take note of a fetch that had its source for itself."""
        self.end(self.begin([(source, size)]), duration_ns)

    def _of(self, name: str) -> _Source | None:
        source = self._sources.pop(name, None)
        if source is None and len(self._sources) >= SOURCES_MAX:
            idle = (other for other, one in self._sources.items() if not one.under_way)
            oldest = next(idle, None)
            if oldest is None:
                return None
            del self._sources[oldest]
        source = self._sources[name] = source or _Source()
        return source

    # what a fetch will take

    def knows(self, source: str) -> bool:
        """Say whether anything was fetched from a source yet."""
        known = self._sources.get(source)
        return known is not None and known.num_fetches > 0

    def cost_ns(self, source: str, size: int) -> float:
        """Give how long so many bytes from a source will take, behind those under way."""
        known = self._sources.get(source, _UNTRIED)
        return known.time_ns(known.under_way + size)

    def worth(
        self, pieces: Sequence[tuple[str, int]], saved_ns: Sequence[float], *, queue_ns: float = 0.0
    ) -> int:
        """Give how many of the offered pieces to take, first to last: (source, bytes) of each, and
        what the first 1, 2, ... of them save. `queue_ns` passes before the task could begin anyway.
        """
        best, best_gain = 0, 0.0
        gain = 0.0
        for count, cost in enumerate(self._costs(pieces, saved_ns), 1):
            gain = saved_ns[count - 1] - max(0.0, cost - queue_ns)
            if gain > best_gain:
                best, best_gain = count, gain
        if best:
            self._allowance_ns += _EXPLORE_SHARE * max(0.0, saved_ns[best - 1] - best_gain)
        elif pieces:
            best = self._explore(pieces, saved_ns, queue_ns)
        return best

    def _costs(
        self, pieces: Sequence[tuple[str, int]], saved_ns: Sequence[float]
    ) -> Sequence[float]:
        """Give what the first 1, 2, ... pieces will take; no further than what may be tried."""
        costs: list[float] = []
        sizes: dict[str, int] = {}
        fetch_ns = 0.0
        for (name, size), _ in zip(pieces, saved_ns, strict=True):
            source = self._sources.get(name, _UNTRIED)
            asked = sizes.get(name, 0)
            untried = not source.num_fetches
            if untried and costs and asked + source.under_way + size > TRY_BYTES:
                break
            if not asked:
                fetch_ns += source.time_ns(source.under_way)
            sizes[name] = asked + size
            fetch_ns += size * source.ns_per_byte
            costs.append(fetch_ns)
        return costs

    def _explore(
        self, pieces: Sequence[tuple[str, int]], saved_ns: Sequence[float], queue_ns: float
    ) -> int:
        """Try one piece all the same if the loss is allowed by now."""
        self._allowance_ns += _EXPLORE_SHARE * saved_ns[-1]
        name, size = pieces[0]
        loss = self.cost_ns(name, size) - queue_ns - saved_ns[0]
        if loss > self._allowance_ns:
            return 0
        self._allowance_ns -= max(0.0, loss)
        return 1

    def standing(self) -> tuple[SourceStanding, ...]:
        """Give what was learned, by source."""
        return tuple(
            SourceStanding(
                source=name,
                latency_ns=one.latency_ns,
                bytes_per_s=1e9 / max(one.ns_per_byte, FASTEST_NS_PER_BYTE),
                fetches=one.num_fetches,
                bytes=one.sent,
                bytes_under_way=one.under_way,
            )
            for name, one in self._sources.items()
        )
