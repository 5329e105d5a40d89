"""The disk side of a share: values written through in the background, and brought back.

    wish ─▶ queue ─▶ Move memory -> disk ─▶ on disk as well             at most so many at one time
    load ─▶ queue ─▶ Move disk -> memory ─▶ held for all who wait       so many of these

A load has its place in memory, and its time, from when it is begun. Who waits is told in time in
any case: what is queued then is forgotten, what is under way comes for the next who asks.

Trouble. FULL (no room, or read-only): no writes for a while, then one more try. CORRUPT: that value
is dropped; the disk goes on. Errors, several in a row: the disk is given up with all that lies only
there. A move that is late tells nothing of a busy disk; where nothing came from the disk meanwhile
it is *silent*: left alone for a while, then tried again, and that several times in a row is the end
as well.
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
LOADS_MAX = 8
"""As many as keep a disk busy: a disk that hangs has no more of the memory than these."""
WISHES_MAX = 1 << 16
QUEUE_MAX = 1 << 12
"""Loads that wait for their turn; one more cannot be had."""
CLEAR_MAX = 512
"""Entries of a disk that was given up that are looked at in one turn."""
TROUBLES_MAX = 3
QUIET_NS = 30_000_000_000
WRITE_NS_MAX = 30_000_000_000
GRACE_NS = 3_000_000_000
"""A move whose end is not told so long after its deadline hangs."""

Waiter = tuple[tuple[Address, int], int]


@dataclass(slots=True)
class Load:
    """A value on its way from the disk to memory."""

    entry: int
    until: int
    """Who waits is told by then."""
    waiters: list[Waiter] = field(default_factory=list)
    place: int = 0
    """In memory, once it is begun."""
    began: int = 0


@dataclass(slots=True)
class _Write:
    entry: int
    place: int
    began: int


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
        self._num_found = self._num_kept = 0
        """Labels of a former self."""
        self._quiet_until = 0
        """For writes."""
        self._silent_until = 0
        self._heard_at = -1
        """When it last ended a move, well or with an error."""
        self._looked_at = 0
        self._troubles = 0
        self._wishes: deque[int] = deque()
        self._writes: dict[int, _Write] = {}
        self._loads: dict[int, Load] = {}
        """By ticket."""
        self._queue: deque[Load] = deque()
        self._loading: dict[int, Load] = {}
        """By entry, queued ones too."""
        self._loaded: list[tuple[Load, bool]] = []

    @property
    def num_loads(self) -> int:
        """Those that have a place in memory."""
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
        """Bring a value to memory, once for all who wait; False if it cannot be had now."""
        disk = self._store.disk
        if disk is None or not self._is_on or now < self._silent_until:
            return False
        load = self._loading.get(entry)
        if load is None:
            load = Load(entry, now + self._want_ns)
            disk.hold(entry)
            if len(self._loads) >= LOADS_MAX and len(self._queue) < QUEUE_MAX:
                self._queue.append(load)
            elif len(self._loads) >= LOADS_MAX or not self._begin(load, now, out):
                self._store.release_disk(entry)
                return False
            self._loading[entry] = load
        elif not load.waiters:
            load.until = now + self._want_ns
        load.waiters.append(waiter)
        return True

    def _begin(self, load: Load, now: int, out: list[Effect]) -> bool:
        """False if there is no room in memory, or the value was dropped while it was queued."""
        store, disk = self._store, self._store.disk
        if disk is None or not disk.tier.has(load.entry):
            return False
        place = store.reserve_for(load.entry)
        if place is None:
            return False
        load.place, load.began = place, now
        index, ticket = store.index, self._ticket()
        self._loads[ticket] = load
        size = index.size[load.entry]
        out.append(
            Move(
                ticket=ticket,
                source=self._places.disk(disk.tier.place(load.entry), size),
                target=self._places.dram(place, size),
                part_bytes=index.part[load.entry],
                check=index.check_of[load.entry],
                deadline=now + self._want_ns,
                cause="pool",
            )
        )
        return True

    def pump(self, now: int, out: list[Effect]) -> None:
        """See who has waited long enough, and whether the disk hangs; begin as many moves as may be
        under way. `loaded` has more to tell then.
        """
        if self._store.disk is None:
            return
        self._look(now, out)
        if not self._is_on:
            self._store.clear_disk(CLEAR_MAX)
        while self._queue and (len(self._loads) < LOADS_MAX or self._queue[0].until <= now):
            load = self._queue.popleft()
            if load.until <= now or not self._begin(load, now, out):
                self._forget(load)
        for load in self._loads.values():
            if load.until <= now and load.waiters:
                self._loaded.append((Load(load.entry, load.until, load.waiters), False))
                load.waiters = []
        if now >= self._silent_until:
            self._begin_writes(now, out)

    def _begin_writes(self, now: int, out: list[Effect]) -> None:
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
            self._writes[ticket] = _Write(entry, place, now)
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
            self._hear(moved, write.began, now, out)
            return True
        load = self._loads.pop(moved.ticket, None)
        if load is None:
            return False
        del self._loading[load.entry]
        self._brought(load, moved.end, out)
        self._hear(moved, load.began, now, out)
        return True

    def loaded(self) -> list[tuple[Load, bool]]:
        """Give the loads that ended since this was asked last, and whether the value is here."""
        ended, self._loaded = self._loaded, []
        return ended

    def scanned(self, scanned: SlabScanned, out: list[Effect]) -> None:
        """Take up what labels say; their values are verified when they are first brought."""
        store = self._store
        if store.disk is None or self._is_scanned or not self._is_on:
            return
        for label in labels.unpack_all(scanned.labels):
            self._num_found += 1
            self._num_kept += store.offer(label)
        self._is_scanned = scanned.last
        if scanned.last and self._num_found:
            values = (("found", float(self._num_found)), ("kept", float(self._num_kept)))
            out.append(Fact(name="pool.scanned", values=values))

    def _written(self, write: _Write, end: MoveEnd, now: int, out: list[Effect]) -> None:
        store, entry = self._store, write.entry
        disk = store.disk
        if disk is None:
            return
        if end is MoveEnd.DONE:
            disk.commit(entry, write.place)
            if not self._is_on or not store.dram.has(entry):
                disk.drop(entry)  # too late: the disk was given up, or the value was, meanwhile
        else:
            disk.cancel(entry, write.place)
        if end is MoveEnd.CORRUPT:  # in memory already: what was read is what was wrong
            store.drop(entry)
            out.append(Fact(name="pool.corrupt", labels=(("tier", "dram"),)))
        elif end is MoveEnd.FULL:
            self._quiet_until = now + QUIET_NS
            out.append(Fact(name="pool.disk_full"))
        elif end not in (MoveEnd.DONE, MoveEnd.LATE):
            self._trouble(end.value, out)
        store.release(entry)

    def _brought(self, load: Load, end: MoveEnd, out: list[Effect]) -> None:
        store, entry = self._store, load.entry
        if end is MoveEnd.DONE:
            store.install(entry, load.place)
            self._loaded.append((load, True))
        else:
            store.cancel_for(entry, load.place)
            self._loaded.append((load, False))
            if end in (MoveEnd.CORRUPT, MoveEnd.STALE):
                out.append(Fact(name="pool.corrupt", labels=(("tier", "disk"),)))
                store.drop(entry)
            elif end is not MoveEnd.LATE:
                self._trouble(end.value, out)
        store.release_disk(entry)

    def _forget(self, load: Load) -> None:
        """It is not queued any more, and will not come."""
        del self._loading[load.entry]
        self._loaded.append((load, False))
        self._store.release_disk(load.entry)

    # whether the disk is any good

    def _hear(self, moved: Moved, began: int, now: int, out: list[Effect]) -> None:
        """A move that waited for others, here or at the disk, tells nothing of the disk."""
        if moved.end is not MoveEnd.LATE:
            self._heard_at = now
        elif moved.wire and self._heard_at <= began:
            self._silent(moved.end.value, now, out)
        if moved.end is MoveEnd.DONE:
            self._troubles = 0

    def _look(self, now: int, out: list[Effect]) -> None:
        """See whether a move hangs. After a sleep of this process ends may come that are not told
        yet: the next look will tell.
        """
        slept = now - self._looked_at > GRACE_NS
        self._looked_at = now
        if slept or not self._is_on:
            return
        writes = (one.began + WRITE_NS_MAX for one in self._writes.values())
        loads = (one.began + self._want_ns for one in self._loads.values())
        first = min((*writes, *loads), default=now)
        if now > max(first, self._heard_at) + GRACE_NS:
            self._silent("silent", now, out)

    def _silent(self, why: str, now: int, out: list[Effect]) -> None:
        """Leave it alone for a while; what hangs then is one trouble, however many moves it is."""
        if now >= self._silent_until:
            self._silent_until = now + QUIET_NS
            self._give_up_queue()
            self._trouble(why, out)

    def _give_up_queue(self) -> None:
        while self._queue:
            self._forget(self._queue.popleft())

    def _trouble(self, why: str, out: list[Effect]) -> None:
        self._troubles += 1
        out.append(Fact(name="pool.disk_trouble", labels=(("end", why),)))
        if self._troubles >= TROUBLES_MAX and self._is_on:
            self._is_on = False
            self._wishes.clear()
            self._give_up_queue()
            self._store.close_disk()
            out.append(Fact(name="pool.disk_off"))

    def check_sums(self) -> None:
        """Raise unless what is held and reserved on disk is what is under way."""
        disk = self._store.disk
        loads = len(self._loads) + len(self._queue)
        must(loads == len(self._loading), "a value is brought twice")
        must(not self._queue or len(self._loads) == LOADS_MAX, "a load waits, and nothing for it")
        if disk is not None:
            disk.tier.check_sums(len(self._writes), list(self._loading))
