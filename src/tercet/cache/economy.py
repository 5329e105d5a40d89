"""Populate or recompute: what bytes from elsewhere cost, learned from what they took.

    time = latency + bytes / bandwidth        of each source, from the transfers that came from it
    saved = prefill of the whole - prefill of the rest      (the executor's own step costs)

A source is a word: `dram`, `ssd`, in upper case on another host, `peer:<host>`. Latency is what
small transfers took, bandwidth what large ones did; both follow the last transfers and forget the
former ones. What nobody tried yet is believed to be good, so that it is tried once.
"""

from dataclasses import dataclass

from msgspec import Struct

SOURCES_MAX = 64
SMALL_BYTES = 256 << 10
"""Transfers below it tell of the latency, those above of the bandwidth."""
FORGET = 0.2
"""What the newest transfer counts for."""


@dataclass(slots=True)
class _Source:
    latency_ns: float
    ns_per_byte: float
    num_transfers: int = 0
    num_bytes: int = 0


class SourceStanding(Struct, frozen=True, kw_only=True):
    """What was learned of one source."""

    source: str
    latency_ns: float
    bytes_per_s: float
    transfers: int
    bytes: int


PRIOR = (150_000.0, 0.1)
"""Of what nobody tried: 150 us, 10 GB/s."""


class Economy:
    """Learns from transfers; decides how much of what could be had is worth its way."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def learn(self, source: str, *, size: int, duration_ns: int) -> None:
        """Take note what a transfer from a source took."""
        if size <= 0 or duration_ns <= 0:
            return
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= SOURCES_MAX:
                return
            known = self._sources[source] = _Source(*PRIOR)
        weight = FORGET if known.num_transfers >= 1 / FORGET else 1 / (known.num_transfers + 1)
        if size < SMALL_BYTES:
            rest = max(0.0, duration_ns - size * known.ns_per_byte)
            known.latency_ns += weight * (rest - known.latency_ns)
        else:
            rest = max(0.0, duration_ns - known.latency_ns) / size
            known.ns_per_byte += weight * (rest - known.ns_per_byte)
        known.num_transfers += 1
        known.num_bytes += size

    def cost_ns(self, source: str, size: int) -> float:
        """Give how long so many bytes from a source will take."""
        known = self._sources.get(source)
        latency_ns, ns_per_byte = PRIOR if known is None else (known.latency_ns, known.ns_per_byte)
        return latency_ns + size * ns_per_byte

    def worth(self, sources: list[tuple[str, int]], saved_ns: list[float]) -> int:
        """Give how many of the offered pieces to take, first to last: (source, bytes) of each, and
        what the first 1, 2, ... of them save. Latencies of one source are paid once.
        """
        best, gain = 0, 0.0
        cost = 0.0
        asked: dict[str, None] = {}
        for count, (source, size) in enumerate(sources, 1):
            whole = self.cost_ns(source, size)
            first = source not in asked
            asked[source] = None
            cost += whole if first else whole - self.cost_ns(source, 0)
            if saved_ns[count - 1] - cost > gain:
                best, gain = count, saved_ns[count - 1] - cost
        return best

    def standing(self) -> tuple[SourceStanding, ...]:
        """Give what was learned, by source."""
        return tuple(
            SourceStanding(
                source=name,
                latency_ns=one.latency_ns,
                bytes_per_s=1e9 / one.ns_per_byte if one.ns_per_byte else 0.0,
                transfers=one.num_transfers,
                bytes=one.num_bytes,
            )
            for name, one in self._sources.items()
        )
