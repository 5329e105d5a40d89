"""One host's share of the pool, as its node agent serves it.

    PoolFind ─▶ PoolFound       what is there now; nothing is held: it may be gone when wanted
    PoolWant ─▶ PoolReady ...   held until PoolDone, the lease's end, or the asker's
    PoolPut  ─▶ PoolStored      each value: place reserved ─ Move ─ committed, or given back

A value is never found before its bytes were copied whole and summed, and never again once they
were seen to be wrong. Whatever cannot be stored or brought is counted and answered, in time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.errors import must
from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Move
from tercet.messages.events import Moved, MoveEnd, SlabScanned
from tercet.messages.kv import (
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolValue,
    PoolWant,
    Strip,
)
from tercet.messages.wire import Message
from tercet.node_agent.pool_disk import DiskSide, Load
from tercet.node_agent.pool_places import Places
from tercet.node_agent.pool_router import VALUES_MAX
from tercet.pool.config import PoolConfig
from tercet.pool.index import NONE
from tercet.pool.store import Store, Value

KEY_BYTES = 16
ASKS_MAX = 4096
SIZE_END = 1 << 32
"""The index counts bytes below it."""
BRINGING = (Address(""), 0)
"""Who waits for a value from the disk where no ask does."""
Answer = Callable[[Address, Message, list[Effect]], None]
AskName = tuple[Address, int]


@dataclass(slots=True)
class _Ask:
    """Found, and perhaps wanted."""

    namespace: str
    keys: bytes
    until: int
    held: dict[int, int] = field(default_factory=dict)
    """Place in the ask -> entry that is held for it."""
    awaited: dict[int, None] = field(default_factory=dict)
    """Places whose values are on their way from the disk."""


@dataclass(slots=True)
class _Put:
    """Values that somebody wants stored."""

    left: int
    stored: int = 0


@dataclass(slots=True)
class _Coming:
    """One value that is to be stored."""

    put: AskName
    namespace: str
    value: Value
    source: PoolValue
    until: int
    place: int = 0
    space: int = 0


class PoolShard:
    """Owns the share; whose home a key is, is nothing to it."""

    def __init__(
        self, config: PoolConfig, *, host: str, ticket: Callable[[], int], answer: Answer
    ) -> None:
        self.store = Store(config)
        self._config = config
        self._ticket = ticket
        self._answer = answer
        self.places = Places(host, self.store)
        self._disk = DiskSide(config, self.store, self.places, ticket=ticket)
        self._asks: dict[AskName, _Ask] = {}
        self._puts: dict[AskName, _Put] = {}
        self._queue: deque[_Coming] = deque()
        self._moves: dict[int, _Coming] = {}
        self._keys_coming: dict[tuple[str, bytes], None] = {}
        self._bringing: dict[int, None] = {}
        self._lease_ns = int(config.lease_s * 1e9)
        self._ask_ns = int(config.ask_s * 1e9)
        self._put_ns = int(config.put_s * 1e9)

    @property
    def is_busy(self) -> bool:
        """Whether something of it ends with time."""
        return bool(self._asks or self._puts)

    # finding and reading

    @property
    def is_bringing(self) -> bool:
        """Whether a value that `bring` was called for is still on its way."""
        return bool(self._bringing)

    def bring(self, entry: int, now: int, out: list[Effect]) -> None:
        """Begin to bring a value from the disk to memory, if there is room; nothing holds it."""
        if self._disk.load(entry, (BRINGING, entry), now, out):
            self._bringing[entry] = None

    def find(self, find: PoolFind, now: int, out: list[Effect]) -> None:
        """Say which of the keys are here, as a leading run."""
        tiers: list[str] = []
        size = 0
        for at in range(0, min(len(find.keys), KEY_BYTES * VALUES_MAX), KEY_BYTES):
            entry = self.store.find(find.namespace, find.keys[at : at + KEY_BYTES])
            if entry == NONE:
                break
            size = self.store.index.size[entry]
            tiers.append(self.store.tier_of(entry))
        name = (find.reply, find.ask)
        if len(self._asks) >= ASKS_MAX and name not in self._asks:
            tiers = []
            out.append(Fact(name="pool.asks_full", cause=find.reply))
        if tiers:
            self._end(name)
            keys = find.keys[: len(tiers) * KEY_BYTES]
            self._asks[name] = _Ask(find.namespace, keys, now + self._ask_ns)
        self._answer(
            find.reply, PoolFound(ask=find.ask, tiers="".join(tiers), bytes_each=size), out
        )

    def want(self, asker: Address, want: PoolWant, now: int, out: list[Effect]) -> None:
        """Hold values; what is not there any more is told at once, what is on disk is brought."""
        name = (asker, want.ask)
        ask = self._asks.get(name)
        known = 0 if ask is None else max(min(want.count, len(ask.keys) // KEY_BYTES), 0)
        count = min(want.count, VALUES_MAX)
        values: dict[int, PoolValue | None] = dict.fromkeys(range(known, count))
        if ask is not None:
            ask.until = now + self._lease_ns
            self._use(ask, known)
            for place in range(known):
                if place not in ask.held and place not in ask.awaited:
                    self._take(name, ask, place, values, now=now, out=out)
        self._tell(name, values, out)

    def _take(
        self,
        name: AskName,
        ask: _Ask,
        place: int,
        values: dict[int, PoolValue | None],
        *,
        now: int,
        out: list[Effect],
    ) -> None:
        store = self.store
        key = ask.keys[place * KEY_BYTES : (place + 1) * KEY_BYTES]
        entry = store.find(ask.namespace, key)
        if entry == NONE:
            values[place] = None
            return
        if store.dram.has(entry):
            self._hold(ask, place, entry)
            values[place] = self.places.value(entry)
        elif self._disk.load(entry, (name, place), now, out):
            ask.awaited[place] = None
        else:
            values[place] = None

    def _use(self, ask: _Ask, known: int) -> None:
        """The last first: of a chain the beginning is to stay longest."""
        for place in range(known - 1, -1, -1):
            key = ask.keys[place * KEY_BYTES : (place + 1) * KEY_BYTES]
            entry = self.store.find(ask.namespace, key)
            if entry != NONE:
                self.store.use(entry)

    def _hold(self, ask: _Ask, place: int, entry: int) -> None:
        self.store.hold(entry)
        ask.held[place] = entry

    def _tell(self, name: AskName, values: dict[int, PoolValue | None], out: list[Effect]) -> None:
        """Answer for these places, neighbours together."""
        run: list[PoolValue | None] = []
        for place in sorted(values):
            run.append(values[place])
            if place + 1 not in values:
                ready = PoolReady(
                    ask=name[1],
                    first=place + 1 - len(run),
                    values=tuple(run),
                    lease_ns=self._lease_ns,
                )
                self._answer(name[0], ready, out)
                run = []

    def done(self, asker: Address, done: PoolDone, out: list[Effect]) -> None:
        """End a lease; what did not verify is dropped."""
        name = (asker, done.ask)
        ask = self._asks.get(name)
        if ask is None:
            return
        for place in done.broken:
            entry = ask.held.get(place)
            if entry is not None:
                self._drop_broken(entry, out)
        self._end(name)

    def _drop_broken(self, entry: int, out: list[Effect]) -> None:
        """The bytes of a value are wrong: nobody finds it any more."""
        out.append(Fact(name="pool.corrupt", labels=(("tier", "dram"),)))
        if self.store.tier_of(entry):
            self.store.drop(entry)

    def _end(self, name: AskName) -> None:
        ask = self._asks.pop(name, None)
        if ask is not None:
            for entry in ask.held.values():
                self.store.release(entry)

    # storing

    def put(self, put: PoolPut, now: int, out: list[Effect]) -> None:
        """Store what is not here yet."""
        name = (put.reply, put.put)
        if name in self._puts:
            return  # said twice: the first is answered
        record = self._puts[name] = _Put(left=0)
        for number, source in enumerate(put.values):
            key = put.keys[number * KEY_BYTES : (number + 1) * KEY_BYTES]
            known = self.store.known(put.namespace, key)
            if known != NONE:
                if self.store.tier_of(known):
                    record.stored += 1
                    self.store.use(known)
                continue
            value = Value(
                key=key, size=source.source.size, part_bytes=put.part_bytes, check=source.check
            )
            coming = _Coming(name, put.namespace, value, source, now + self._put_ns)
            self._enqueue(coming, record)
        self._pump(now, out)
        self._answer_put(name, out)

    def _enqueue(self, coming: _Coming, record: _Put) -> None:
        value = coming.value
        key = (coming.namespace, value.key)
        is_sound = self._is_sound(value, coming.source.source)
        if is_sound and key not in self._keys_coming and len(self._queue) < self._config.puts_max:
            self._keys_coming[key] = None
            self._queue.append(coming)
            record.left += 1

    def _is_sound(self, value: Value, source: Strip) -> bool:
        """Whether it can be stored: who offers it may be wrong. Our disk is read by us alone."""
        unit, part = source.length, value.part_bytes
        fits = 0 < part <= unit <= value.size < SIZE_END and unit % part == 0
        whole = len(value.key) == KEY_BYTES and len(source.units) % 4 == 0
        return fits and whole and source.memory != self.places.disk_name

    def _pump(self, now: int, out: list[Effect]) -> None:
        while self._queue and len(self._moves) < self._config.moves_max:
            coming = self._queue.popleft()
            if coming.until <= now:
                self._end_coming(coming, "late", out)
                continue
            got = self.store.reserve(coming.namespace, coming.value.key, coming.value.size)
            if got is None:
                self._end_coming(coming, "full", out)
                continue
            coming.place, coming.space = got
            ticket = self._ticket()
            self._moves[ticket] = coming
            out.append(
                Move(
                    ticket=ticket,
                    source=coming.source.source,
                    target=self.places.dram(coming.place, coming.value.size),
                    part_bytes=coming.value.part_bytes,
                    check=coming.value.check,
                    deadline=coming.until,
                    cause="pool",
                )
            )

    def _end_coming(self, coming: _Coming, why: str, out: list[Effect]) -> None:
        """It is stored (no reason why not), or never will be."""
        del self._keys_coming[coming.namespace, coming.value.key]
        if why:
            out.append(Fact(name="pool.not_stored", labels=(("why", why),)))
        record = self._puts.get(coming.put)
        if record is not None:
            record.left -= 1
            record.stored += not why
            self._answer_put(coming.put, out)

    def _answer_put(self, name: AskName, out: list[Effect]) -> None:
        record = self._puts.get(name)
        if record is not None and not record.left:
            del self._puts[name]
            self._answer(name[0], PoolStored(put=name[1], stored=record.stored), out)

    # what drivers and time bring

    def moved(self, moved: Moved, now: int, out: list[Effect]) -> bool:
        """Take the end of a move; False if it is not one of the share's."""
        coming = self._moves.pop(moved.ticket, None)
        if coming is not None:
            self._came(coming, moved.end, out)
        elif not self._disk.moved(moved, now, out):
            return False
        self._tell_loaded(out)  # before anything else takes their places
        self._pump(now, out)
        self._pump_disk(now, out)
        return True

    def _pump_disk(self, now: int, out: list[Effect]) -> None:
        self._disk.pump(now, out)
        self._tell_loaded(out)

    def _tell_loaded(self, out: list[Effect]) -> None:
        for load, is_here in self._disk.loaded():
            self._loaded(load, is_here, out)

    def _came(self, coming: _Coming, end: MoveEnd, out: list[Effect]) -> None:
        value = coming.value
        if end is MoveEnd.DONE and self.store.known(coming.namespace, value.key) == NONE:
            entry = self.store.commit(coming.place, coming.space, value)
            self._disk.wish(entry)
            self._end_coming(coming, "", out)
            return
        self.store.cancel(coming.place, coming.space, value.size)
        self._end_coming(coming, "" if end is MoveEnd.DONE else end.value, out)

    def _loaded(self, load: Load, is_here: bool, out: list[Effect]) -> None:
        """Tell all who wait for a value from the disk."""
        self._bringing.pop(load.entry, None)
        for name, place in load.waiters:
            ask = self._asks.get(name)
            if ask is None or place not in ask.awaited:
                continue
            del ask.awaited[place]
            value = None
            if is_here:
                self._hold(ask, place, load.entry)
                value = self.places.value(load.entry)
            self._tell(name, {place: value}, out)

    def scanned(self, scanned: SlabScanned, now: int, out: list[Effect]) -> None:
        """Take up what a former self left on the disk."""
        self._disk.scanned(scanned, out)
        self._pump_disk(now, out)

    def gone(self, peer: Address) -> None:
        """A peer is gone: its leases end, and what it wanted stored is not waited for."""
        for name in [name for name in self._asks if name[0] == peer]:
            self._end(name)
        for name in [name for name in self._puts if name[0] == peer]:
            del self._puts[name]
        left = [coming for coming in self._queue if coming.put[0] != peer]
        for coming in self._queue:
            if coming.put[0] == peer:
                del self._keys_coming[coming.namespace, coming.value.key]
        self._queue = deque(left)

    def sweep(self, now: int, out: list[Effect]) -> None:
        """End leases that are over and forget what was found and never wanted."""
        for name in [name for name, ask in self._asks.items() if ask.until <= now]:
            if self._asks[name].held:
                out.append(Fact(name="pool.lease_expired", cause=name[0]))
            self._end(name)
        self._pump(now, out)
        self._pump_disk(now, out)

    def check_sums(self, others: list[int]) -> None:
        """Raise unless pins and reserved places are those of asks, moves and `others`."""
        held = [entry for ask in self._asks.values() for entry in ask.held.values()]
        reserved = len(self._moves) + self._disk.num_loads
        self.store.dram.check_sums(reserved, [*held, *others, *self._disk.held()])
        self._disk.check_sums()
        must(len(self._keys_coming) == len(self._queue) + len(self._moves), "keys come twice")
