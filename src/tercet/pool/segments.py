"""Room for values of any length, in memories that were brought in before.

    segment  [ span: 24 slots of 9 units | free run | span: 3 slots of 720 units | free run ]

Values are kept in slots of exactly their length in units of 4 KiB; slots of one length lie in
spans, and a span is a free run that was given to one length. A model's values all have one length,
so nothing is lost within slots and little at the ends of segments. A span whose slots are all free
becomes a free run again when another length needs it; a length that finds no run at all is told
which span to clear (`neighbours`). Places are numbers of units over all segments.
"""

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tercet.base.errors import must
from tercet.pool.config import UNIT_BYTES

NO_OWNER = 0xFFFFFFFF
SPANS_AIMED_AT = 64
"""A span takes about this part of the whole, or one slot."""


class SegmentStats(Struct, frozen=True, kw_only=True):
    """In bytes."""

    total: int
    used: int
    free: int
    spans: int
    largest: int
    """The longest run that a value of any length could have now."""

    @property
    def fragmentation(self) -> float:
        """Part of what is free that one value could not have."""
        return 1 - self.largest / self.free if self.free else 0.0


def units_for(size: int) -> int:
    """Give how many units a value of so many bytes takes."""
    return -(-size // UNIT_BYTES)


class Span:
    """Slots of one length. Which are free is listed when one is first taken: a span that is adopted
    slot by slot is not searched for each.
    """

    __slots__ = ("_free", "num_free", "owners", "slot", "start")

    def __init__(self, start: int, slot: int, count: int) -> None:
        self.start = start
        self.slot = slot
        self.owners = array("I", [NO_OWNER]) * count
        self.num_free = count
        self._free: array[int] | None = None

    @property
    def count(self) -> int:
        return len(self.owners)

    @property
    def units(self) -> int:
        return self.slot * len(self.owners)

    def take(self, owner: int) -> int:
        """Give the number of a slot that was free."""
        free = self._free
        if free is None:
            free = self._free = self._listed()
        number = free.pop()
        self.owners[number] = owner
        self.num_free -= 1
        return number

    def adopt(self, number: int, owner: int) -> None:
        """Take this very slot, which is free."""
        self.owners[number] = owner
        self.num_free -= 1
        self._free = None

    def give(self, number: int) -> None:
        self.owners[number] = NO_OWNER
        self.num_free += 1
        if self._free is not None:
            self._free.append(number)

    def _listed(self) -> "array[int]":
        """The first one last."""
        numbers = range(self.count - 1, -1, -1)
        if self.num_free == self.count:
            return array("I", numbers)
        owners = self.owners
        return array("I", (number for number in numbers if owners[number] == NO_OWNER))

    def check(self) -> None:
        """Raise unless the free slots are those that nobody owns."""
        free = self._listed()
        must(len(free) == self.num_free, f"span {self.start} lost a slot")
        is_listed = self._free is None or sorted(self._free, reverse=True) == list(free)
        must(is_listed, f"span {self.start} lists others than its free slots")


class Segments:
    """The places of one tier; a call is O(1) unless it makes a span, or is the first to take from
    one that was adopted.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        """`sizes`: of the segments in bytes; what does not fill a unit is left alone."""
        self._edges = array("Q", [0])
        self._runs: dict[int, int] = {}
        self._run_ends: dict[int, int] = {}
        for size in sizes:
            start, units = self._edges[-1], size // UNIT_BYTES
            if units:
                self._add_run(start, units)
                self._edges.append(start + units)
        self.total = self._edges[-1]
        self.used = 0
        """Units of taken slots."""
        self._starts: list[int] = []
        self._spans: dict[int, Span] = {}
        self._open: dict[int, dict[int, None]] = {}
        """Slot length -> starts of spans with a free slot."""

    @property
    def free(self) -> int:
        return self.total - self.used

    def segment_of(self, unit: int) -> tuple[int, int]:
        """Give (number of the segment, byte in it) of a place."""
        number = bisect_right(self._edges, unit) - 1
        return number, (unit - self._edges[number]) * UNIT_BYTES

    def take(self, size: int, owner: int) -> int | None:
        """Give a place for a value; None if there is none, and then nothing has changed."""
        slot = units_for(size)
        if slot < 1 or slot > self.total:
            return None
        spans = self._open.get(slot)
        if not spans:
            start = self._make_span(slot)
            if start is None:
                return None
        else:
            start = next(iter(spans))
        span = self._spans[start]
        number = span.take(owner)
        if not span.num_free:
            self._close(span)
        self.used += slot
        return start + number * slot

    def give(self, unit: int) -> None:
        """Free a place."""
        span, number = self._find(unit)
        must(span.owners[number] != NO_OWNER, f"unit {unit} is given back, and was free")
        if not span.num_free:
            self._open.setdefault(span.slot, {})[span.start] = None
        span.give(number)
        self.used -= span.slot

    def rename(self, unit: int, owner: int) -> None:
        """Note another owner of a taken place."""
        span, number = self._find(unit)
        must(span.owners[number] != NO_OWNER, f"unit {unit} is free")
        span.owners[number] = owner

    def owner(self, unit: int) -> int:
        """Give who owns the slot at this unit, or NO_OWNER."""
        span, number = self._find(unit)
        return span.owners[number]

    def owner_at(self, unit: int) -> int | None:
        """Give who owns the slot that begins at any unit; None if none does."""
        at = bisect_right(self._starts, unit) - 1
        span = self._spans[self._starts[at]] if at >= 0 else None
        if span is None or unit >= span.start + span.units or (unit - span.start) % span.slot:
            return None
        owner = span.owners[(unit - span.start) // span.slot]
        return None if owner == NO_OWNER else owner

    def span_of(self, unit: int) -> tuple[int, int, int]:
        """Give (start, slots, units of a slot) of the span around a place."""
        span, _ = self._find(unit)
        return span.start, span.count, span.slot

    def neighbours(self, unit: int) -> list[int]:
        """Give all owners in the span of a place: without them it can serve another length."""
        span, _ = self._find(unit)
        return [owner for owner in span.owners if owner != NO_OWNER]

    def adopt(self, start: int, slots: int, slot: int) -> bool:
        """Make a span where a former self had one; False if that is not all free."""
        units = slot * slots
        if start in self._spans or slot < 1 or slots < 1 or start + units > self.total:
            return False
        at = self._run_around(start)
        if at is None or start + units > at + self._runs[at]:
            return False
        length = self._runs[at]
        self._drop_run(at)
        if start > at:
            self._add_run(at, start - at)
        if at + length > start + units:
            self._add_run(start + units, at + length - start - units)
        self._add_span(Span(start, slot, slots))
        return True

    def adopt_slot(self, unit: int, owner: int) -> bool:
        """Take one slot of an adopted span; False if it is no free slot."""
        at = bisect_right(self._starts, unit) - 1
        span = self._spans[self._starts[at]] if at >= 0 else None
        if span is None or unit >= span.start + span.units or (unit - span.start) % span.slot:
            return False
        number = (unit - span.start) // span.slot
        if span.owners[number] != NO_OWNER:
            return False
        span.adopt(number, owner)
        if not span.num_free:
            self._close(span)
        self.used += span.slot
        return True

    def stats(self) -> SegmentStats:
        """O(spans)."""
        empty = [span.units for span in self._spans.values() if span.num_free == span.count]
        return SegmentStats(
            total=self.total * UNIT_BYTES,
            used=self.used * UNIT_BYTES,
            free=self.free * UNIT_BYTES,
            spans=len(self._spans),
            largest=max([*self._runs.values(), *empty], default=0) * UNIT_BYTES,
        )

    def owners(self) -> Iterator[tuple[int, int]]:
        """Give (place, owner) of everything that is taken."""
        for span in self._spans.values():
            for number, owner in enumerate(span.owners):
                if owner != NO_OWNER:
                    yield span.start + number * span.slot, owner

    def check(self) -> None:
        """Raise unless runs and spans cover every unit once and the sums hold; O(slots)."""
        pieces = sorted([*self._runs.items(), *((s.start, s.units) for s in self._spans.values())])
        at = 0
        for start, units in pieces:
            must(start == at, f"units {at} to {start} are nowhere, or twice")
            at = start + units
        must(at == self.total, f"{at} units of {self.total} are covered")
        used = 0
        for span in self._spans.values():
            taken = sum(1 for owner in span.owners if owner != NO_OWNER)
            span.check()
            is_open = span.start in self._open.get(span.slot, {})
            must(is_open == bool(span.num_free), f"span {span.start} is listed wrongly")
            used += taken * span.slot
        must(used == self.used, f"{used} units are taken, {self.used} are counted")

    # spans and runs

    def _find(self, unit: int) -> tuple[Span, int]:
        at = bisect_right(self._starts, unit) - 1
        must(at >= 0, f"unit {unit} lies in no span")
        span = self._spans[self._starts[at]]
        number, beyond = divmod(unit - span.start, span.slot)
        must(number < span.count and not beyond, f"unit {unit} begins no slot")
        return span, number

    def _make_span(self, slot: int) -> int | None:
        run = self._pick_run(slot)
        if run is None:
            self._dissolve_empty()
            run = self._pick_run(slot)
        if run is None:
            return None
        wanted = max(1, self.total // SPANS_AIMED_AT // slot)
        length = self._runs[run]
        count = min(wanted, length // slot)
        self._drop_run(run)
        if length > count * slot:
            self._add_run(run + count * slot, length - count * slot)
        self._add_span(Span(run, slot, count))
        return run

    def _pick_run(self, slot: int) -> int | None:
        """Give the first run that is long enough for a whole span, else the longest that holds a
        slot.
        """
        wanted = max(1, self.total // SPANS_AIMED_AT // slot) * slot
        best, best_length = None, slot - 1
        for start, length in self._runs.items():
            if length >= wanted:
                return start
            if length > best_length:
                best, best_length = start, length
        return best

    def _add_span(self, span: Span) -> None:
        self._spans[span.start] = span
        insort(self._starts, span.start)
        self._open.setdefault(span.slot, {})[span.start] = None

    def _close(self, span: Span) -> None:
        spans = self._open[span.slot]
        del spans[span.start]
        if not spans:
            del self._open[span.slot]

    def _dissolve_empty(self) -> None:
        empty = [span for span in self._spans.values() if span.num_free == span.count]
        for span in empty:
            self._close(span)
            del self._spans[span.start]
            self._starts.remove(span.start)
            self._add_run(span.start, span.units)

    def _run_around(self, unit: int) -> int | None:
        for start, length in self._runs.items():
            if start <= unit < start + length:
                return start
        return None

    def _add_run(self, start: int, length: int) -> None:
        """Join it with its neighbours, but not over the edge of a segment."""
        end = start + length
        if end in self._runs and end not in self._edges:
            length += self._runs[end]
            self._drop_run(end)
        if start in self._run_ends and start not in self._edges:
            before = self._run_ends[start]
            length += start - before
            self._drop_run(before)
            start = before
        self._runs[start] = length
        self._run_ends[start + length] = start

    def _drop_run(self, start: int) -> None:
        length = self._runs.pop(start)
        del self._run_ends[start + length]
