"""Prompts that were computed, stored in the pool beside everything else.

    prompt computed ──▶ blocks held once more ──Sum──▶ checks ──PoolPut──▶ PoolStored, or too late
        │ no room or no agent for that now                                     ├─▶ blocks given back
        └─▶ OWED ◀──────────────────────── not stored ─────────────────────────┘
              └── swap: about to be evicted, and nowhere else ──Sum──▶ ... once; nothing is held:
                  whoever reads too late finds other lives

Only whole values of the prompt: what was generated, reasoning included, is not stored. What is
known to be there already is not offered again.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tercet.base.ids import BLOCK_TOKENS, Address, BlockId
from tercet.cache.cache import Holding
from tercet.cache.rtc import Rtc, Store
from tercet.messages.effects import Effect, Fact, Send, Sum
from tercet.messages.events import Summed
from tercet.messages.kv import PoolPut, PoolStored, PoolValue, Strip
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.config import Capacity
from tercet.task_executor.inflow import layout_of, strip_at
from tercet.transfer.config import TransferConfig

OWED_MAX = 4096
"""Keys of values that are remembered as not stored yet."""
SWAP_SHARE = 1 / 4
SWAP_MAX = 256
"""Blocks that are about to be evicted: so many of an arena, or fewer than that."""
SWAP_VALUES = 16
"""At a time."""
POOL = "pool"
"""The place that copies are known in: which tier and host, the agents know."""
_NOTHING = array("i")
_ONE_MORE = array("i", [0])
"""A hit leaves one token to compute; here none has to be left."""


@dataclass(slots=True)
class _Store:
    """One prompt's values on their way into the pool."""

    number: int
    namespace: str
    keys: list[bytes]
    strips: list[Strip]
    held: Holding | None
    """None: a swap."""
    until: int
    name: str


class Storer:
    """All stores of one executor; `ticket` numbers sums over the whole machine."""

    def __init__(
        self,
        config: TransferConfig,
        capacity: Capacity,
        scheduler: Scheduler,
        rtc: Rtc,
        *,
        ticket: Callable[[], int],
        connected: Callable[[Address], bool],
    ) -> None:
        self._capacity = capacity
        self._scheduler = scheduler
        self._ticket = ticket
        self._connected = connected
        self._patience_ns = int(config.lease_s * 1e9)
        self._max_stores = config.max_stores
        self._all: dict[int, _Store] = {}
        self._of_sum: dict[int, _Store] = {}
        self._rtc = rtc
        self._owed: OrderedDict[bytes, None] = OrderedDict()
        self._ahead = min(SWAP_MAX, max(1, int(SWAP_SHARE * capacity.num_blocks)))
        self._swap_at = 0
        """The number of evictions with which to look again."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def num_holding(self) -> int:
        """Those that hold blocks."""
        return sum(one.held is not None for one in self._all.values())

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that stores hold."""
        for store in self._all.values():
            if store.held is not None:
                yield from store.held.table

    def offer(self, run: TaskRun, now: int, out: list[Effect]) -> None:
        """Store the full values of a prompt that is computed, unless they are known to be there."""
        value, agent, holding = self._capacity.value_tokens, self._capacity.agent, run.holding
        count = run.num_prompt // value if value else 0
        if not count or holding is None or holding.num_borrowed or agent is None:
            return
        prompt = run.tokens[: count * value]
        keys = self._scheduler.cache.keys_for(run.task.namespace, prompt, value)
        fresh = [key for key in keys if key not in self._rtc.copies]
        if fresh and self._may_store(agent):
            self._store(run.task.namespace, prompt, run.name, now=now, out=out)
        else:
            self._owe(fresh)

    def swap(self, now: int, out: list[Effect]) -> None:
        """Store what is owed and about to be evicted; a glance unless some were evicted."""
        cache, agent = self._rtc.cache, self._capacity.agent
        if not self._owed or agent is None or cache.num_evictions < self._swap_at:
            return
        if cache.pool.num_free > self._ahead or not self._may_store(agent):
            return
        self._swap_at = cache.num_evictions + (self._ahead + 1) // 2
        going: dict[str, list[Store]] = {}
        plan = self._rtc.swap_plan(self._owed, num_blocks=self._ahead)
        for namespace, one in islice(plan, SWAP_VALUES):
            going.setdefault(namespace, []).append(one)
        for namespace, stores in going.items():
            if self._may_store(agent):
                self._begin(namespace, stores, None, name="swap", now=now, out=out)

    def _may_store(self, agent: Address) -> bool:
        return len(self._all) < self._max_stores and self._connected(agent)

    def _owe(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._owed[key] = None
        while len(self._owed) > OWED_MAX:
            self._owed.popitem(last=False)

    def _store(
        self, namespace: str, tokens: "array[int]", name: str, *, now: int, out: list[Effect]
    ) -> None:
        """Hold the values of computed tokens that are nowhere else."""
        # The path in the index and not the task's own blocks: another task may have computed the
        # same ones first, and whoever holds a block of the index holds its ancestors there.
        cache = self._rtc.cache
        held = cache.hold(namespace, tokens + _ONE_MORE)
        computed = min(len(tokens), BLOCK_TOKENS * len(held.table))
        stores = self._rtc.copy(held, tokens, computed=computed)
        if stores:
            self._begin(namespace, stores, held, name=name, now=now, out=out)
        else:
            cache.release(held, tokens, computed=0, index=False)

    def _begin(
        self,
        namespace: str,
        stores: list[Store],
        held: Holding | None,
        *,
        name: str,
        now: int,
        out: list[Effect],
    ) -> None:
        """Have values summed; the pool hears of them then."""
        reach = self._capacity.reach
        self._next += 1
        store = _Store(
            number=self._next,
            namespace=namespace,
            keys=[one.key for one in stores],
            strips=[strip_at(reach, one.units, one.lives) for one in stores],
            held=held,
            until=now + self._patience_ns,
            name=name,
        )
        for key in store.keys:
            self._owed.pop(key, None)
        self._all[store.number] = store
        ticket = self._ticket()
        self._of_sum[ticket] = store
        part = layout_of(reach).layer_bytes
        out.append(Sum(ticket=ticket, sources=tuple(store.strips), part_bytes=part, cause=name))

    def give_back(self) -> bool:
        """Hold nothing for the newest store any more; false: there is none. Who reads it late finds
        other lives.
        """
        if not self._all:
            return False
        store = next((one for one in reversed(self._all.values()) if one.held), None)
        if store is None:
            return False
        self._fail(store)
        return True

    def owns(self, ticket: int) -> bool:
        return ticket in self._of_sum

    def summed(self, event: Summed, out: list[Effect]) -> None:
        """The values have their checks: offer them to the pool."""
        store = self._of_sum.pop(event.ticket)
        agent = self._capacity.agent
        if store.number not in self._all or agent is None:
            return
        pairs = zip(store.strips, event.checks, strict=True)
        message = PoolPut(
            put=store.number,
            namespace=store.namespace,
            keys=b"".join(store.keys),
            values=tuple(PoolValue(strip, check) for strip, check in pairs),
            part_bytes=layout_of(self._capacity.reach).layer_bytes,
            reply=agent,
        )
        out.append(Send(to=agent, message=message, cause=store.name))

    def stored(self, message: PoolStored, out: list[Effect]) -> None:
        """The pool reads nothing of a store any more."""
        store = self._all.get(message.put)
        if store is None:
            return
        if message.stored == len(store.keys):
            for key in store.keys:
                self._rtc.copies.note(key, POOL)
        elif store.held is not None:
            self._owe(store.keys)
        values = (("offered", float(len(store.keys))), ("stored", float(message.stored)))
        out.append(Fact(name="pool.offered", values=values, cause=store.name))
        self._end(store)

    def gone(self, peer: Address) -> None:
        """The agent is away: it reads nothing, and what it had is to be seen anew."""
        if peer == self._capacity.agent:
            self._rtc.copies.forget()
            for store in list(self._all.values()):
                self._fail(store)

    def woke(self, now: int) -> None:
        """Hold blocks for nobody who is silent: a late read finds other lives."""
        for store in list(self._all.values()):
            if now >= store.until:
                self._fail(store)

    def _fail(self, store: _Store) -> None:
        """It was not stored; what is swapped out is tried once."""
        if store.held is not None:
            self._owe(store.keys)
        self._end(store)

    def _end(self, store: _Store) -> None:
        del self._all[store.number]
        if store.held is not None:
            self._rtc.cache.release(store.held, _NOTHING, computed=0, index=False)
