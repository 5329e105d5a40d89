"""Prompts that were computed, stored in the pool beside everything else.

    prompt computed ──▶ blocks held once more ──Sum──▶ checks ──PoolPut──▶ PoolStored, or too late
                                                                              └─▶ blocks given back

Only whole values of the prompt: what was generated, reasoning included, is not stored. What is
known to be there already is not offered again.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tercet.base.ids import BLOCK_TOKENS, Address, BlockId
from tercet.cache.cache import Holding
from tercet.cache.copies import Copies
from tercet.messages.effects import Effect, Fact, Send, Sum
from tercet.messages.events import Summed
from tercet.messages.kv import PoolPut, PoolStored, PoolValue, Strip
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.config import Capacity
from tercet.task_executor.inflow import layout_of, strip_of
from tercet.transfer.config import TransferConfig

KNOWN_MAX = 65_536
"""Keys that are remembered as stored; they may have been driven out since: then the next prompt
finds nothing, computes, and they are offered again once they are forgotten here."""
POOL = "pool"
"""The place that copies are known in: which tier and host, the agents know."""
_ONE_MORE = array("i", [0])
"""A hit leaves one token to compute; here none has to be left."""


@dataclass(slots=True)
class _Store:
    """One prompt's values on their way into the pool."""

    number: int
    namespace: str
    keys: list[bytes]
    strips: list[Strip]
    held: Holding
    prompt: "array[int]"
    until: int
    name: str


class Storer:
    """All stores of one executor; `ticket` numbers sums over the whole machine."""

    def __init__(
        self,
        config: TransferConfig,
        capacity: Capacity,
        scheduler: Scheduler,
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
        self._known = Copies(num_keys_max=KNOWN_MAX)
        self._next = 0

    def __len__(self) -> int:
        return len(self._all)

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that stores hold."""
        for store in self._all.values():
            yield from store.held.table

    def offer(self, run: TaskRun, now: int, out: list[Effect]) -> None:
        """Store the full values of a prompt that is computed, unless they are known to be there."""
        tokens, agent = self._capacity.value_tokens, self._capacity.agent
        count = run.num_prompt // tokens if tokens else 0
        holding = run.holding
        if not count or holding is None or holding.num_borrowed or agent is None:
            return
        if len(self._all) >= self._max_stores or not self._connected(agent):
            return
        namespace, per = run.task.namespace, tokens // BLOCK_TOKENS
        prompt = run.tokens[: count * tokens]
        keys = self._scheduler.cache.keys_for(namespace, prompt, tokens)
        fresh = [place for place, key in enumerate(keys) if key not in self._known]
        if not fresh:
            return
        # The path in the index and not the task's own blocks: another task may have computed the
        # same ones first, and whoever holds a block of the index holds its ancestors there.
        cache = self._scheduler.cache
        held = cache.hold(namespace, prompt + _ONE_MORE)
        fresh = [place for place in fresh if per * (place + 1) <= len(held.table)]
        if not fresh:
            cache.release(held, prompt, computed=0, index=False)
            return
        strips = [
            strip_of(cache, self._capacity.reach, held.table[per * p : per * (p + 1)])
            for p in fresh
        ]
        self._next += 1
        store = _Store(
            number=self._next,
            namespace=namespace,
            keys=[keys[place] for place in fresh],
            strips=strips,
            held=held,
            prompt=prompt,
            until=now + self._patience_ns,
            name=run.name,
        )
        self._all[store.number] = store
        ticket = self._ticket()
        self._of_sum[ticket] = store
        part = layout_of(self._capacity.reach).layer_bytes
        out.append(Sum(ticket=ticket, sources=tuple(strips), part_bytes=part, cause=run.name))

    def give_back(self) -> bool:
        """Hold nothing for the newest store any more; false: there is none. Who reads it late finds
        other lives.
        """
        if not self._all:
            return False
        self._end(next(reversed(self._all.values())))
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
                self._known.note(key, POOL)
        values = (("offered", float(len(store.keys))), ("stored", float(message.stored)))
        out.append(Fact(name="pool.offered", values=values, cause=store.name))
        self._end(store)

    def missed(self, keys: list[bytes]) -> None:
        """These turned out not to be there: they are offered again."""
        for key in keys:
            self._known.lost(key)

    def gone(self, peer: Address) -> None:
        """The agent is away: it reads nothing, and what it had is to be seen anew."""
        if peer == self._capacity.agent:
            self._known.forget()
            for store in list(self._all.values()):
                self._end(store)

    def woke(self, now: int) -> None:
        """Hold blocks for nobody who is silent: a late read finds other lives."""
        for store in list(self._all.values()):
            if now >= store.until:
                self._end(store)

    def _end(self, store: _Store) -> None:
        del self._all[store.number]
        self._scheduler.cache.release(store.held, store.prompt, computed=0, index=False)
