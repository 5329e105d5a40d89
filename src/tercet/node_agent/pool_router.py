"""Questions to the pool, asked of the agent of one's own host and answered by each key's home.

    executor ─PoolFind─▶ agent ─PoolFind─▶ agent of each home         FINDING
             ◀PoolFound─  the leading run over all of them, at most 200 ms later: FOUND
             ─PoolWant─▶        ─PoolWant─▶                            WANTED
             ◀PoolReady─        ◀PoolReady─   as they come
             ─PoolDone─▶        ─PoolDone─▶

Only questions travel this way: a value is read where it lies. A home that does not answer has
nothing: the run ends there. Questions of other agents are answered by the share alone, never passed
on, so two agents that know other lists of hosts cannot send each other round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact
from tercet.messages.kv import (
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolValue,
    PoolWant,
)
from tercet.messages.wire import Message
from tercet.pool.config import PoolConfig
from tercet.pool.placement import Placement

KEY_BYTES = 16
ASKS_MAX = 4096
VALUES_MAX = 1 << 16
"""One question is about no more."""
TIERS = "ds"
"""What a share may answer for a value: in memory, on disk."""
PUT_FACTOR = 2
"""A put is answered after so many times what one value may take, stored or not."""

Say = Callable[[Address, Message, int, list[Effect]], None]


@dataclass(slots=True)
class _Share:
    """What one home was asked."""

    to: Address
    number: int
    places: list[int]
    """Where its keys are in the whole question."""
    tiers: str | None = None
    """Its leading run; None: no answer yet."""


@dataclass(slots=True)
class _Asked:
    """One question of an executor."""

    asker: Address
    ask: int
    num_keys: int
    shares: list[_Share]
    until: int
    bytes_each: int = 0
    is_found: bool = False
    awaited: dict[int, None] = field(default_factory=dict)
    """Wanted values that no home has answered for yet."""
    patience_until: int = 0


@dataclass(slots=True)
class _Stored:
    """One put of an executor."""

    asker: Address
    put: int
    shares: dict[int, Address]
    until: int
    stored: int = 0


class PoolRouter:
    """Splits, forwards and merges; `say` reaches an agent, this one included."""

    def __init__(self, config: PoolConfig, *, own: Address, say: Say) -> None:
        self._own = own
        self._say = say
        self.placement = Placement()
        self.agents: dict[str, Address] = {}
        self._next = 0
        self._asked: dict[tuple[Address, int], _Asked] = {}
        self._of_number: dict[int, tuple[_Asked, _Share]] = {}
        self._puts: dict[int, _Stored] = {}
        self._answer_ns = int(config.answer_s * 1e9)
        self._want_ns = int(config.want_s * 1e9)
        self._lease_ns = int((config.lease_s + config.want_s) * 1e9)
        self._put_ns = int(PUT_FACTOR * config.put_s * 1e9)

    @property
    def is_busy(self) -> bool:
        return bool(self._asked or self._puts)

    def set_hosts(self, agents: dict[str, Address]) -> None:
        """These hosts keep shares, under these agents."""
        self.agents = agents
        self.placement = Placement(agents)

    # questions

    def find(self, asker: Address, find: PoolFind, now: int, out: list[Effect]) -> None:
        """Ask each home about its keys."""
        self.done(asker, PoolDone(ask=find.ask), now, out)
        num_keys = len(find.keys) // KEY_BYTES
        asked = _Asked(asker, find.ask, num_keys, [], now + self._answer_ns)
        if len(self._asked) >= ASKS_MAX or not self.agents or num_keys > VALUES_MAX:
            self._say(asker, PoolFound(ask=find.ask, tiers=""), now, out)
            return
        self._asked[asker, find.ask] = asked
        for to, places in self._homes(find.keys).items():
            share = _Share(to, self._number(), places)
            asked.shares.append(share)
            self._of_number[share.number] = (asked, share)
        for share in list(asked.shares):
            keys = b"".join(find.keys[KEY_BYTES * p : KEY_BYTES * (p + 1)] for p in share.places)
            message = PoolFind(
                ask=share.number, namespace=find.namespace, keys=keys, reply=self._own
            )
            self._say(share.to, message, now, out)
        self._merge(asked, now, out)

    def found(self, sender: Address, found: PoolFound, now: int, out: list[Effect]) -> None:
        """A home answers."""
        asked, share = self._of_number.get(found.ask, (None, None))
        if asked is None or share is None or share.to != sender or asked.is_found:
            return
        share.tiers = _leading(found.tiers)[: len(share.places)]
        asked.bytes_each = max(asked.bytes_each, found.bytes_each)
        self._merge(asked, now, out)

    def _merge(self, asked: _Asked, now: int, out: list[Effect], *, late: bool = False) -> None:
        """Answer, if nothing is missing any more, or nothing is waited for."""
        if asked.is_found or (not late and any(share.tiers is None for share in asked.shares)):
            return
        tiers = [""] * asked.num_keys
        for share in asked.shares:
            for place, tier in zip(share.places, share.tiers or "", strict=False):
                tiers[place] = tier if share.to == self._own else tier.upper()
            if share.tiers is None:
                out.append(Fact(name="pool.silent", labels=(("agent", share.to),)))
        run = tiers.index("") if "" in tiers else len(tiers)
        asked.is_found = True
        asked.until = now + self._lease_ns
        message = PoolFound(ask=asked.ask, tiers="".join(tiers[:run]), bytes_each=asked.bytes_each)
        if not run:
            self._forget(asked)
        self._say(asked.asker, message, now, out)

    def want(self, asker: Address, want: PoolWant, now: int, out: list[Effect]) -> None:
        """Ask each home to hold its part of the first so many."""
        asked = self._asked.get((asker, want.ask))
        count = min(want.count, VALUES_MAX)
        if asked is None or not asked.is_found:
            ready = PoolReady(ask=want.ask, first=0, values=(None,) * count, lease_ns=0)
            self._say(asker, ready, now, out)
            return
        asked.until = now + self._lease_ns
        asked.patience_until = now + self._want_ns + self._answer_ns
        asked.awaited = dict.fromkeys(range(count))
        for share in list(asked.shares):
            mine = sum(1 for place in share.places if place < count)
            if mine:
                self._say(share.to, PoolWant(ask=share.number, count=mine), now, out)
        beyond = list(range(asked.num_keys, count))
        self._give_up(asked, beyond, now, out)

    def ready(self, sender: Address, ready: PoolReady, now: int, out: list[Effect]) -> None:
        """A home has brought values, or cannot: pass it on under the asker's numbers."""
        asked, share = self._of_number.get(ready.ask, (None, None))
        if asked is None or share is None or share.to != sender:
            return
        values: dict[int, PoolValue | None] = {}
        for number, value in enumerate(ready.values, ready.first):
            place = share.places[number] if 0 <= number < len(share.places) else -1
            if place in asked.awaited:
                del asked.awaited[place]
                values[place] = value
        self._pass_on(asked, values, lease_ns=ready.lease_ns, now=now, out=out)

    def _pass_on(
        self,
        asked: _Asked,
        values: dict[int, PoolValue | None],
        *,
        lease_ns: int,
        now: int,
        out: list[Effect],
    ) -> None:
        run: list[PoolValue | None] = []
        for place in sorted(values):
            run.append(values[place])
            if place + 1 not in values:
                first = place + 1 - len(run)
                message = PoolReady(
                    ask=asked.ask, first=first, values=tuple(run), lease_ns=lease_ns
                )
                self._say(asked.asker, message, now, out)
                run = []

    def _give_up(self, asked: _Asked, places: list[int], now: int, out: list[Effect]) -> None:
        """Nobody will bring these."""
        values: dict[int, PoolValue | None] = {}
        for place in places:
            if place in asked.awaited:
                del asked.awaited[place]
                values[place] = None
        self._pass_on(asked, values, lease_ns=0, now=now, out=out)

    def done(self, asker: Address, done: PoolDone, now: int, out: list[Effect]) -> None:
        """Tell every home that was asked; what was broken is told to its own."""
        asked = self._asked.get((asker, done.ask))
        if asked is None:
            return
        self._forget(asked)
        broken = dict.fromkeys(done.broken)
        for share in asked.shares:
            theirs = tuple(n for n, place in enumerate(share.places) if place in broken)
            self._say(share.to, PoolDone(ask=share.number, broken=theirs), now, out)

    def _forget(self, asked: _Asked) -> None:
        self._asked.pop((asked.asker, asked.ask), None)
        for share in asked.shares:
            self._of_number.pop(share.number, None)

    # puts

    def put(self, asker: Address, put: PoolPut, now: int, out: list[Effect]) -> None:
        """Offer each value to its home."""
        record = _Stored(asker, put.put, {}, now + self._put_ns)
        homes = self._homes(put.keys) if len(self._puts) < ASKS_MAX else {}
        messages: list[tuple[Address, PoolPut]] = []
        for to, places in homes.items():
            message = PoolPut(
                put=self._number(),
                namespace=put.namespace,
                keys=b"".join(put.keys[KEY_BYTES * p : KEY_BYTES * (p + 1)] for p in places),
                values=tuple(put.values[p] for p in places if p < len(put.values)),
                part_bytes=put.part_bytes,
                reply=self._own,
            )
            record.shares[message.put] = to
            self._puts[message.put] = record
            messages.append((to, message))
        for to, message in messages:
            self._say(to, message, now, out)
        if not messages:
            self._say(asker, PoolStored(put=put.put, stored=0), now, out)

    def stored(self, sender: Address, stored: PoolStored, now: int, out: list[Effect]) -> None:
        """A home has stored its part, or some of it."""
        record = self._puts.get(stored.put)
        if record is None or record.shares.get(stored.put) != sender:
            return
        record.stored += stored.stored
        self._end_share(stored.put, record, now, out)

    def _end_share(self, number: int, record: _Stored, now: int, out: list[Effect]) -> None:
        del self._puts[number]
        del record.shares[number]
        if not record.shares:
            self._say(record.asker, PoolStored(put=record.put, stored=record.stored), now, out)

    # peers and time

    def gone(self, peer: Address, now: int, out: list[Effect]) -> None:
        """An executor takes its questions with it; an agent, its answers."""
        for asked in [asked for asked in self._asked.values() if asked.asker == peer]:
            self.done(peer, PoolDone(ask=asked.ask), now, out)
        for asked in list(self._asked.values()):
            for share in asked.shares:
                if share.to == peer:
                    share.tiers = share.tiers or ""
                    self._give_up(asked, share.places, now, out)
            self._merge(asked, now, out)
        for number, record in list(self._puts.items()):
            if record.shares.get(number) == peer:
                self._end_share(number, record, now, out)

    def sweep(self, now: int, out: list[Effect]) -> None:
        """Wait no longer than was said."""
        for asked in list(self._asked.values()):
            if asked.awaited and now >= asked.patience_until:
                self._give_up(asked, list(asked.awaited), now, out)
            if now >= asked.until:
                if asked.is_found:
                    self.done(asked.asker, PoolDone(ask=asked.ask), now, out)
                else:
                    self._merge(asked, now, out, late=True)
        for number, record in list(self._puts.items()):
            if now >= record.until and number in self._puts:
                self._end_share(number, record, now, out)

    def _homes(self, keys: bytes) -> dict[Address, list[int]]:
        homes: dict[Address, list[int]] = {}
        for place in range(len(keys) // KEY_BYTES):
            host = self.placement.home(keys[KEY_BYTES * place : KEY_BYTES * (place + 1)])
            if host:
                homes.setdefault(self.agents[host], []).append(place)
        return homes

    def _number(self) -> int:
        self._next += 1
        return self._next


def _leading(tiers: str) -> str:
    """The tiers of a share, up to what is none: another agent may say anything."""
    return tiers[: len(tiers) - len(tiers.lstrip(TIERS))]
