"""Values whose home is another host since the list of hosts changed: offered to it, in batches.

    new list ─▶ walk over entries ─▶ batch for one home ─ PoolPut ─▶ stored there, dropped here
                     ▲                                       │
                     └────────── next batch ◀── PoolStored, or no answer in time

What lies in memory goes first. A second walk takes what lies on disk alone: a few values at a time
are brought to memory, where the walk then finds them. One batch at a time, so that a host that
joins costs the others little. What cannot be brought, or finds no room there, stays until it is the
oldest here, and is computed again if it is asked for meanwhile.
"""

from dataclasses import dataclass

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact
from tercet.messages.kv import PoolPut, PoolStored
from tercet.node_agent.pool_router import Say
from tercet.node_agent.pool_shard import PoolShard
from tercet.pool.config import PoolConfig
from tercet.pool.placement import Placement

WALK = 256
"""Entries that one turn looks at."""
BRING_MAX = 4
"""Values that are brought from the disk at a time: others are waited for."""
FIRST_NUMBER = 1 << 62
"""Puts of its own are told from those of the router."""


@dataclass(slots=True)
class _Batch:
    number: int
    to: Address
    entries: list[int]
    until: int


class Rehoming:
    """Walks over the share whenever the homes of keys have changed."""

    def __init__(self, config: PoolConfig, shard: PoolShard, *, own: Address, say: Say) -> None:
        self._config = config
        self._shard = shard
        self._store = shard.store
        self._places = shard.places
        self._own = own
        self._say = say
        self._cursor = -1
        """Next entry to look at; -1: all are at home."""
        self._on_disk = False
        """Whether this walk is the second."""
        self._brought = 0
        """Entries below it were brought from the disk, or could not be."""
        self._batch: _Batch | None = None
        self._number = FIRST_NUMBER
        self._offered = 0

    @property
    def is_busy(self) -> bool:
        return self._cursor >= 0 or self._batch is not None

    def held(self) -> list[int]:
        """Give the entries that are held while they are offered."""
        return [] if self._batch is None else list(self._batch.entries)

    def begin(self) -> None:
        """The homes have changed: look at everything (again)."""
        self._start(on_disk=False)

    def _start(self, *, on_disk: bool) -> None:
        self._cursor = self._brought = 0
        self._on_disk = on_disk

    def step(
        self, placement: Placement, agents: dict[str, Address], now: int, out: list[Effect]
    ) -> None:
        """Look at some more entries, until there is a batch to offer."""
        if self._batch is not None:
            if now >= self._batch.until:
                self._close(dropped=False)
            return
        if self._cursor < 0 or self._shard.is_bringing:
            return
        home, entries = self._walk(placement, agents)
        if entries:
            self._offer(agents[home], entries, now, out)
        elif self._cursor < self._store.index.bound:
            if self._on_disk:
                self._bring(placement, agents, now, out)
        elif self._store.disk is not None and not self._on_disk:
            self._start(on_disk=True)
        else:
            self._cursor = -1
            if self._offered:
                values = (("values", float(self._offered)),)
                out.append(Fact(name="pool.rehomed", values=values))
                self._offered = 0

    def _walk(self, placement: Placement, agents: dict[str, Address]) -> tuple[str, list[int]]:
        """Give the next entries in memory that have one other home, and that; it stops at one that
        is to be brought first.
        """
        end = min(self._cursor + WALK, self._store.index.bound)
        entries: list[int] = []
        home = ""
        while self._cursor < end and len(entries) < self._config.rehome_batch:
            entry = self._cursor
            host = self._other_home(entry, placement, agents)
            if host and not self._store.dram.has(entry):
                if self._on_disk and entry >= self._brought:
                    break
            elif host:
                if entries and (host != home or not self._is_like(entry, entries[0])):
                    break  # it begins the next batch
                home = host
                entries.append(entry)
            self._cursor += 1
        return home, entries

    def _bring(
        self, placement: Placement, agents: dict[str, Address], now: int, out: list[Effect]
    ) -> None:
        """Begin to bring the next few from the disk."""
        first, count = max(self._cursor, self._brought), 0
        for entry in range(first, min(first + WALK, self._store.index.bound)):
            if self._other_home(entry, placement, agents) and not self._store.dram.has(entry):
                self._shard.bring(entry, now, out)
                count += 1
            self._brought = entry + 1
            if count == BRING_MAX:
                break

    def _other_home(self, entry: int, placement: Placement, agents: dict[str, Address]) -> str:
        """Give the home of a value that can go there, unless that is here."""
        if not self._store.index.is_used(entry) or not self._can_go(entry):
            return ""
        host = placement.home(self._store.key_of(entry))
        return host if host and agents[host] != self._own else ""

    def stored(self, sender: Address, stored: PoolStored) -> bool:
        """The new home has answered; False if that was no batch of ours."""
        batch = self._batch
        if batch is None or stored.put != batch.number or sender != batch.to:
            return stored.put >= FIRST_NUMBER
        dropped = stored.stored == len(batch.entries)
        self._offered += stored.stored
        self._close(dropped=dropped)
        return True

    def gone(self, peer: Address) -> None:
        if self._batch is not None and self._batch.to == peer:
            self._close(dropped=False)

    def _can_go(self, entry: int) -> bool:
        """It can be read, and the name of its namespace is known again."""
        store = self._store
        return bool(store.tier_of(entry)) and store.index.space[entry] in store.spaces.names

    def _is_like(self, entry: int, first: int) -> bool:
        index = self._store.index
        return index.space[entry] == index.space[first] and index.part[entry] == index.part[first]

    def _offer(self, to: Address, entries: list[int], now: int, out: list[Effect]) -> None:
        store = self._store
        for entry in entries:
            store.hold(entry)
        self._number += 1
        until = now + int(self._config.put_s * 1.5e9)
        self._batch = _Batch(self._number, to, entries, until)
        put = PoolPut(
            put=self._number,
            namespace=store.spaces.names[store.index.space[entries[0]]],
            keys=b"".join(store.key_of(entry) for entry in entries),
            values=tuple(self._places.value(entry) for entry in entries),
            part_bytes=store.index.part[entries[0]],
            reply=self._own,
        )
        self._say(to, put, now, out)

    def _close(self, *, dropped: bool) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        for entry in batch.entries:
            if dropped and self._store.tier_of(entry):
                self._store.drop(entry)
            self._store.release(entry)
