"""The disk side of a share: values written through in the background, and brought back.

    wish ─▶ queue ─▶ Move memory -> disk ─▶ on disk as well       at most so many at one time
    load ─▶ Move disk -> memory ─▶ held for all who wait

Trouble. FULL (no room, or read-only): no writes for a while, then one more try. GONE or LATE,
several times in a row: the disk is given up with all that lies only there. CORRUPT: that value is
dropped; the disk goes on.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.errors import must
from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Move
from tercet.messages.events import Moved, MoveEnd, SlabScanned
from tercet.node_agent.pool_places import Places
from tercet.pool import labels
from tercet.pool.config import PoolConfig
from tercet.pool.store import Store

WRITES_MAX = 8
WISHES_MAX = 1 << 16
TROUBLES_MAX = 3
QUIET_NS = 30_000_000_000
WRITE_NS_MAX = 30_000_000_000

Waiter = tuple[tuple[Address, int], int]


@dataclass(slots=True)
class Load:
    """A value on its way from the disk to memory."""

    entry: int
    place: int
    waiters: list[Waiter] = field(default_factory=list)


@dataclass(slots=True)
class _Write:
    entry: int
    place: int


class DiskSide:
    """What is under way between the two tiers of a share."""

    def __init__(
        self, config: PoolConfig, store: Store, places: Places, *, ticket: Callable[[], int]
    ) -> None:
        self._store = store
        self._places = places
        self._ticket = ticket
        self._want_ns = int(config.want_s * 1e9)
        self._is_on = store.disk is not None
        self._is_scanned = False
        self._quiet_until = 0
        self._troubles = 0
        self._wishes: deque[int] = deque()
        self._writes: dict[int, _Write] = {}
        self._loads: dict[int, Load] = {}
        """By ticket."""
        self._loading: dict[int, Load] = {}
        """By entry."""
        self._loaded: list[tuple[Load, bool]] = []

    @property
    def num_loads(self) -> int:
        return len(self._loads)

    def held(self) -> list[int]:
        """Give the entries whose copy in memory is held while it is written."""
        return [write.entry for write in self._writes.values()]

    def wish(self, entry: int) -> None:
        """Write a value through when there is time."""
        if self._is_on:
            self._wishes.append(entry)
            if len(self._wishes) > WISHES_MAX:
                self._wishes.popleft()  # it stays in memory alone

    def load(self, entry: int, waiter: Waiter, now: int, out: list[Effect]) -> bool:
        """Bring a value to memory, once for all who wait; False if there is no room for it."""
        load = self._loading.get(entry)
        if load is None:
            place = self._store.reserve_for(entry) if self._is_on else None
            disk = self._store.disk
            if place is None or disk is None:
                return False
            load = Load(entry, place)
            disk.hold(entry)
            index, ticket = self._store.index, self._ticket()
            self._loads[ticket] = self._loading[entry] = load
            size = index.size[entry]
            out.append(
                Move(
                    ticket=ticket,
                    source=self._places.disk(disk.tier.place(entry), size),
                    target=self._places.dram(place, size),
                    part_bytes=index.part[entry],
                    check=index.check_of[entry],
                    deadline=now + self._want_ns,
                    cause="pool",
                )
            )
        load.waiters.append(waiter)
        return True

    def pump(self, now: int, out: list[Effect]) -> None:
        """Begin writes, as many as may be under way."""
        store, disk = self._store, self._store.disk
        if disk is None or not self._is_on or not self._is_scanned or now < self._quiet_until:
            return
        while self._wishes and len(self._writes) < WRITES_MAX:
            entry = self._wishes.popleft()
            if not store.index.is_used(entry) or not store.dram.has(entry):
                continue  # evicted before it was written
            if disk.tier.has(entry) or entry in self.held():
                continue  # its number was another value's before, which was wished for too
            got = disk.reserve(entry, store.key_of(entry))
            if got is None:
                continue
            place, label = got
            store.hold(entry)
            index, ticket = store.index, self._ticket()
            self._writes[ticket] = _Write(entry, place)
            size = index.size[entry]
            out.append(
                Move(
                    ticket=ticket,
                    source=self._places.dram(store.dram.place(entry), size),
                    target=self._places.disk(place, size),
                    part_bytes=index.part[entry],
                    check=index.check_of[entry],
                    deadline=now + WRITE_NS_MAX,
                    label=label,
                    cause="pool",
                )
            )

    def moved(self, moved: Moved, now: int, out: list[Effect]) -> bool:
        """Take the end of a move; False if it is not one of these."""
        write = self._writes.pop(moved.ticket, None)
        if write is not None:
            self._written(write, moved.end, now, out)
            return True
        load = self._loads.pop(moved.ticket, None)
        if load is None:
            return False
        del self._loading[load.entry]
        self._brought(load, moved.end, out)
        return True

    def loaded(self) -> list[tuple[Load, bool]]:
        """Give the loads that ended since this was asked last, and whether the value is here."""
        ended, self._loaded = self._loaded, []
        return ended

    def scanned(self, scanned: SlabScanned, out: list[Effect]) -> None:
        """Take up what labels say; their values are verified when they are first brought."""
        store = self._store
        if store.disk is None or self._is_scanned:
            return
        found = list(labels.unpack_all(scanned.labels))
        kept = sum(1 for label in found if store.offer(label))
        if found:
            values = (("found", float(len(found))), ("kept", float(kept)))
            out.append(Fact(name="pool.scanned", values=values))
        if scanned.last:
            store.disk.adopted()
            self._is_scanned = True

    def _written(self, write: _Write, end: MoveEnd, now: int, out: list[Effect]) -> None:
        store, entry = self._store, write.entry
        disk = store.disk
        if disk is None:
            return
        if end is MoveEnd.DONE:
            disk.commit(entry, write.place)
            self._troubles = 0
            if not self._is_on:
                disk.drop(entry)  # it came too late: nothing is read from there any more
        else:
            disk.cancel(entry, write.place)
        if end is MoveEnd.CORRUPT:  # in memory already: what was read is what was wrong
            store.drop(entry)
            out.append(Fact(name="pool.corrupt", labels=(("tier", "dram"),)))
        elif end is MoveEnd.FULL:
            self._quiet_until = now + QUIET_NS
            out.append(Fact(name="pool.disk_full"))
        elif end is not MoveEnd.DONE:
            self._trouble(end, out)
        store.release(entry)

    def _brought(self, load: Load, end: MoveEnd, out: list[Effect]) -> None:
        store, entry = self._store, load.entry
        if end is MoveEnd.DONE:
            store.install(entry, load.place)
            self._troubles = 0
            self._loaded.append((load, True))
        else:
            store.cancel_for(entry, load.place)
            self._loaded.append((load, False))
            if end in (MoveEnd.CORRUPT, MoveEnd.STALE):
                out.append(Fact(name="pool.corrupt", labels=(("tier", "disk"),)))
                store.drop(entry)
            else:
                self._trouble(end, out)
        store.release_disk(entry)

    def _trouble(self, end: MoveEnd, out: list[Effect]) -> None:
        self._troubles += 1
        out.append(Fact(name="pool.disk_trouble", labels=(("end", end.value),)))
        if self._troubles >= TROUBLES_MAX and self._is_on:
            self._is_on = False
            self._wishes.clear()
            self._store.close_disk()
            out.append(Fact(name="pool.disk_off"))

    def check_sums(self) -> None:
        """Raise unless what is held and reserved on disk is what is under way."""
        disk = self._store.disk
        must(len(self._loads) == len(self._loading), "a value is brought twice")
        if disk is not None:
            disk.tier.check_sums(len(self._writes), list(self._loading))
