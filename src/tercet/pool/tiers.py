"""One tier of a host's share: memory, or disk. Places, the order of eviction, pins, quotas.

            reserve              commit                   evict, drop
    FREE ─────────▶ RESERVED ─────────────▶ STORED ─────────────────────▶ FREE
     ▲                 │ cancel              │   ▲ last release
     └─────────────────┘                hold ▼   │
                                            HELD ── drop ──▶ DOOMED ── last release ──▶ FREE

A held value's place is not given to another. A doomed one is found by nobody: it waits for its
readers alone.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from tercet.base.errors import must
from tercet.pool.config import UNIT_BYTES
from tercet.pool.index import NONE, Index
from tercet.pool.lists import Lists
from tercet.pool.namespaces import COMMON
from tercet.pool.policies import POLICIES, Policy
from tercet.pool.segments import Segments, SegmentStats, units_for

RESERVED = NONE - 1
"""The owner of a place whose value has not come yet."""
EVICTIONS_MAX = 256
"""Values that one reservation may push out before it gives up."""


class TierStats(Struct, frozen=True, kw_only=True):
    """What a tier holds, and what became of it since the start."""

    segments: SegmentStats
    values: int
    held: int
    reserved: int
    evictions: int


class Tier:
    """The places of values in one kind of memory."""

    def __init__(
        self,
        index: Index,
        sizes: Iterable[int],
        *,
        policy: str,
        watermark: float,
        left: Callable[[int], None],
    ) -> None:
        """`left` is told of every entry that this tier gave up by itself."""
        self.segments = Segments(sizes)
        self._index = index
        self._left = left
        self._lists = Lists(index)
        self._place = index.column("I", NONE)
        self._stamp = index.column("I", 0)
        self._make: Callable[[], Policy] = lambda: POLICIES[policy](index, self._lists)
        self._parts: dict[int, Policy] = {COMMON: self._make()}
        self._quotas: dict[int, int] = {}
        self._filled: dict[int, int] = {}
        """Units of each part that has a quota."""
        self._limit = int(self.segments.total * watermark)
        self._pins: dict[int, int] = {}
        self._doomed: dict[int, int] = {}
        """Entry -> its part."""
        self._clock = 0
        self._reserved = 0
        self._values = 0
        self._evictions = 0

    def set_quotas(self, bytes_of: Mapping[int, int]) -> None:
        """Give these parts an order of their own and a bound."""
        for part, bound in bytes_of.items():
            self._parts[part] = self._make()
            self._quotas[part] = bound // UNIT_BYTES
            self._filled[part] = 0

    def has(self, entry: int) -> bool:
        """Say whether the value lies here and may be found."""
        return self._place[entry] != NONE and entry not in self._doomed

    def place(self, entry: int) -> int:
        return self._place[entry]

    def keeps(self, entry: int) -> bool:
        """Say whether its bytes lie here, found or doomed."""
        return self._place[entry] != NONE

    # a value comes

    def reserve(self, size: int, part: int, word: int = 0) -> int | None:
        """Give a place, pushing out what has to go; None if there is no room. `word`: the second
        of the value's key.
        """
        units = units_for(size)
        self._parts[part].expect(word)
        if units < 1 or units > self._limit or not self._make_room_in(part, units):
            return None
        for _ in range(EVICTIONS_MAX):
            unit = None
            if self.segments.used + units <= self._limit:
                unit = self.segments.take(size, RESERVED)
            if unit is not None:
                self._reserved += 1
                if part in self._filled:
                    self._filled[part] += units
                return unit
            victim = self._oldest()
            if victim == NONE:
                return None
            self._push_out(victim, units)
        return None

    def evict_oldest(self) -> bool:
        """Push one value out, whatever room there is; False if all are held."""
        victim = self._oldest()
        if victim != NONE:
            self._evict(victim, self._part_of(victim))
        return victim != NONE

    def cancel(self, unit: int, size: int, part: int) -> None:
        """The value did not come."""
        self._reserved -= 1
        self._give(unit, size, part)

    def commit(self, entry: int, unit: int, part: int) -> None:
        """The value is there."""
        must(self._place[entry] == NONE, f"entry {entry} lies here twice")
        self.segments.rename(unit, entry)
        self._reserved -= 1
        self._settle(entry, unit, part)

    def fits(self, part: int, size: int) -> bool:
        """Say whether the part's quota allows for one more value."""
        bound = self._quotas.get(part)
        return bound is None or self._filled[part] + units_for(size) <= bound

    def adopt(self, entry: int, unit: int, part: int) -> bool:
        """Take up a value that a former self stored; False if its place is none."""
        if not self.segments.adopt_slot(unit, entry):
            return False
        if part in self._filled:
            self._filled[part] += units_for(self._index.size[entry])
        self._settle(entry, unit, part)
        return True

    def _settle(self, entry: int, unit: int, part: int) -> None:
        self._place[entry] = unit
        self._stamp[entry] = self._tick()
        self._values += 1
        self._parts[part].add(entry)

    # a value is used

    def use(self, entry: int, part: int) -> None:
        """Note that it was asked for."""
        if self.has(entry):
            self._stamp[entry] = self._tick()
            self._parts[part].use(entry)

    def hold(self, entry: int, part: int) -> None:
        """Keep it where it is until `release`."""
        must(self._place[entry] != NONE, f"entry {entry} is held, and does not lie here")
        pins = self._pins.get(entry, 0)
        if not pins:
            self._parts[part].hold(entry)
        self._pins[entry] = pins + 1

    def release(self, entry: int, part: int) -> bool:
        """Hold it once less; True if it was doomed and has gone now."""
        pins = self._pins.get(entry, 0) - 1
        must(pins >= 0, f"entry {entry} is released, and nobody holds it")
        if pins:
            self._pins[entry] = pins
            return False
        del self._pins[entry]
        if entry in self._doomed:
            del self._doomed[entry]
            self._remove(entry, part, evicted=False)
            return True
        self._parts[part].release(entry)
        return False

    def drop(self, entry: int, part: int) -> bool:
        """Find it no more; True if its place is free now, False if readers are waited for."""
        must(self._place[entry] != NONE, f"entry {entry} is dropped, and does not lie here")
        if entry in self._pins:
            self._doomed[entry] = part
            return False
        self._remove(entry, part, evicted=False)
        return True

    # room

    def _make_room_in(self, part: int, units: int) -> bool:
        bound = self._quotas.get(part)
        if bound is None:
            return True
        while self._filled[part] + units > bound:
            victim = self._parts[part].victim()
            if victim == NONE:
                return False
            self._evict(victim, part)
        return True

    def _oldest(self) -> int:
        """Give the victim of all parts' victims that was used last the longest ago."""
        best, best_age = NONE, -1
        for policy in self._parts.values():
            victim = policy.victim()
            if victim != NONE:
                age = self._clock - self._stamp[victim] & NONE
                if age > best_age:
                    best, best_age = victim, age
        return best

    def _push_out(self, victim: int, units: int) -> None:
        """Evict it; if its place is of another length, clear all around it that can go."""
        unit = self._place[victim]
        if self.segments.span_of(unit)[2] == units:
            self._evict(victim, self._part_of(victim))
            return
        for owner in self.segments.neighbours(unit):
            if owner != RESERVED and owner not in self._pins:
                self._evict(owner, self._part_of(owner))

    def _part_of(self, entry: int) -> int:
        space = self._index.space[entry]
        return space if space in self._quotas else COMMON

    def _evict(self, entry: int, part: int) -> None:
        self._evictions += 1
        self._remove(entry, part, evicted=True)
        self._left(entry)

    def _remove(self, entry: int, part: int, *, evicted: bool) -> None:
        self._parts[part].remove(entry, evicted=evicted)
        unit = self._place[entry]
        self._place[entry] = NONE
        self._values -= 1
        self._give(unit, self._index.size[entry], part)

    def _give(self, unit: int, size: int, part: int) -> None:
        self.segments.give(unit)
        if part in self._filled:
            self._filled[part] -= units_for(size)

    def _tick(self) -> int:
        self._clock = self._clock + 1 & NONE
        return self._clock

    # what there is

    def stats(self) -> TierStats:
        return TierStats(
            segments=self.segments.stats(),
            values=self._values,
            held=len(self._pins),
            reserved=self._reserved,
            evictions=self._evictions,
        )

    def check_sums(self, reserved: int, held: Iterable[int]) -> None:
        """Raise unless pins and reservations are those that the owner knows of; O(pins)."""
        must(self._reserved == reserved, f"{self._reserved} places reserved, {reserved} known")
        pins: dict[int, int] = {}
        for entry in held:
            pins[entry] = pins.get(entry, 0) + 1
        must(pins == self._pins, f"{self._pins} are held, and {pins} are known of")
        segments = self.segments
        must(0 <= segments.used <= segments.total, f"{segments.used} units used")
        for entry in self._doomed:
            must(entry in self._pins, f"entry {entry} is doomed, and nobody waits for it")

    def check(self) -> None:
        """Raise unless every place belongs to the entry that says so; O(values)."""
        self.segments.check()
        values = reserved = 0
        filled = dict.fromkeys(self._filled, 0)
        for unit, owner in self.segments.owners():
            if owner == RESERVED:
                reserved += 1
                continue
            values += 1
            must(self._place[owner] == unit, f"entry {owner} does not know of unit {unit}")
            part = self._part_of(owner)
            if part in filled:
                filled[part] += units_for(self._index.size[owner])
            listed = bool(self._lists.list_of(owner))
            must(listed != (owner in self._pins), f"entry {owner} is held and can go")
        must(values == self._values, f"{values} values lie here, {self._values} are counted")
        must(reserved == self._reserved, f"{reserved} reserved, {self._reserved} counted")
        for part, units in filled.items():
            must(units <= self._filled[part], f"part {part} fills {units} units")
            must(self._filled[part] <= self._quotas[part], f"part {part} is over its quota")
