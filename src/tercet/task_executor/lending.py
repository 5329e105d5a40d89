"""What an executor computes and lends for others: prefills by ask, leases on their blocks.

AskBlocks ──all cached──▶ lent at once
    └──▶ a run that samples nothing ──▶ (by layer: told plan by plan) ──▶ lent, the run is over
a lease holds what its run held, as if that still ran, until ReturnBlocks, expiry, absence or
another epoch of the asker; a run that is preempted after words of its blocks went out is revoked
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, Epoch, TaskId
from tercet.cache.cache import Cache, Holding
from tercet.jobs.job import Task
from tercet.jobs.sampling import SamplingParameters
from tercet.messages.effects import Effect, Fact, Send
from tercet.messages.kv import (
    AskBlocks,
    BlocksReady,
    BlocksRefused,
    LeasesStand,
    RenewLeases,
    Way,
)
from tercet.messages.wire import SubmitTask
from tercet.scheduling.batch import Planned
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import UNADMITTED
from tercet.task_executor.config import Capacity
from tercet.transfer.config import TransferConfig
from tercet.transfer.states import LeaseEvent, LeaseState, next_lease_state

Key = tuple[Address, int]
CROWDED = "too many blocks are read in place"
"""The one refusal after which it helps to ask for a copy."""
_READ_IN_PLACE_MAX = 0.5
"""Of all blocks: what is read in place stays for as long as others decode."""
_ONE_MORE = array("i", [0])
"""A hit leaves one token to compute; here none has to be left."""


@dataclass(slots=True)
class Lending:
    """One ask, until it is over."""

    ask: AskBlocks
    asker: Address
    epoch: Epoch
    expires: int
    num_blocks: int
    state: LeaseState = LeaseState.QUEUED
    run: TaskRun | None = None
    """What computes them."""
    holding: Holding | None = None
    """Once all are there: what is held for the asker."""
    computed: int = 0
    """Tokens of the lent blocks that were computed for it."""
    told: int = 0
    """Blocks up to here the asker was told of."""

    @property
    def name(self) -> str:
        return f"lease {self.asker}/{self.ask.ask}"

    @property
    def tokens(self) -> "array[int]":
        return array("i", self.ask.tokens)

    def same(self, other: "Lending") -> bool:
        """Whether it is another ask for the same blocks."""
        return (
            self is not other
            and self.num_blocks == other.num_blocks
            and self.ask.namespace == other.ask.namespace
            and self.ask.tokens == other.ask.tokens
        )

    def step(self, event: LeaseEvent) -> None:
        self.state = next_lease_state(self.state, event, self.name)


class Lender:
    """The lender's books; `order` gives each run its place in the order of arrival."""

    def __init__(
        self,
        config: TransferConfig,
        capacity: Capacity,
        scheduler: Scheduler,
        *,
        order: Callable[[], int],
        submit: Callable[[TaskRun, int, list[Effect]], None],
    ) -> None:
        """`submit` queues a prefill, after what the pool has of it has come."""
        self._submit = submit
        self._config = config
        self._capacity = capacity
        self._scheduler = scheduler
        self._cache: Cache = scheduler.cache
        self._order = order
        self._lease_ns = int(config.lease_s * 1e9)
        self._grace_ns = int(config.silence_s * 1e9)
        self._lendings: dict[Key, Lending] = {}
        self._of_run: dict[TaskId, Lending] = {}
        self._next_task = 0

    @property
    def num_lendings(self) -> int:
        return len(self._lendings)

    @property
    def num_lent(self) -> int:
        """Asks for which blocks are held."""
        return sum(lending.holding is not None for lending in self._lendings.values())

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that leases hold, each as often as it is held."""
        for lending in self._lendings.values():
            if lending.holding is not None:
                yield from lending.holding.table

    # what askers say

    def asked(
        self, message: AskBlocks, sender: Address, epoch: Epoch, *, now: int, out: list[Effect]
    ) -> None:
        """Queue a prefill, or lend at once what is cached, or say why not. An ask that is repeated
        is answered again once all is there: the first answer may have been lost.
        """
        key = (sender, message.ask)
        present = self._lendings.get(key)
        if present is not None and present.epoch == epoch:
            if present.holding is not None:
                out.append(Send(to=sender, message=self._words(present, present.holding)))
            return
        if present is not None:
            self._end(present, LeaseEvent.RENEWED, out)
        reason = self._refusal(message)
        if reason:
            out.append(Send(to=sender, message=BlocksRefused(ask=message.ask, reason=reason)))
            out.append(Fact(name="kv.refused", labels=(("reason", reason),), cause=sender))
            return
        count = len(message.tokens) // (4 * BLOCK_TOKENS)
        lending = Lending(message, sender, epoch, now + self._lease_ns, count)
        self._lendings[key] = lending
        if not self._lend_cached(lending, out):
            self._queue(lending, now, out)

    def returned(self, asks: tuple[int, ...], sender: Address, out: list[Effect]) -> None:
        for ask in asks:
            lending = self._lendings.get((sender, ask))
            if lending is not None:
                self._end(lending, LeaseEvent.RETURN, out)

    def renewed(self, message: RenewLeases, sender: Address, now: int, out: list[Effect]) -> None:
        """Prolong what the asker still wants, and tell it what stands."""
        standing = []
        for ask in message.asks:
            lending = self._lendings.get((sender, ask))
            if lending is not None:
                lending.expires = now + self._lease_ns
                standing.append(ask)
        stand = LeasesStand(asks=tuple(standing), said=message.said)
        out.append(Send(to=sender, message=stand, cause=sender))

    def joined(self, peer: Address, epoch: Epoch, out: list[Effect]) -> None:
        """Another self of an asker is there: what the former one wanted is over."""
        for lending in [one for one in self._lendings.values() if one.asker == peer]:
            if lending.epoch < epoch:
                self._end(lending, LeaseEvent.RENEWED, out)

    def gone(self, peer: Address, now: int) -> None:
        """The connection to an asker ended: it has a while to come back and renew. What it may be
        reading stays for as long as it was told.
        """
        for lending in self._lendings.values():
            if lending.asker == peer and lending.state is not LeaseState.LENT:
                lending.expires = min(lending.expires, now + self._grace_ns)

    # what the engine does

    def planned(self, planned: Planned, out: list[Effect]) -> None:
        """By layer: lend what a plan computes before it is computed; the layer clock tells when."""
        if not self._of_run:
            return
        for run in planned.runs[planned.num_decodes :]:
            lending = self._of_run.get(run.id)
            if lending is None or lending.ask.way is not Way.LAYER or run.holding is None:
                continue
            before = min(run.computed, run.computed_ahead) // BLOCK_TOKENS
            if before > max(lending.told, lending.ask.first):
                self._tell(lending, run.holding.table, before, out)
            end = run.computed_ahead // BLOCK_TOKENS
            if end > max(lending.told, lending.ask.first):
                self._tell(lending, run.holding.table, end, out, step=planned.plan.step)

    def preempted(self, run: TaskRun, out: list[Effect]) -> None:
        """A prefill lost its blocks: whoever was told of them already must not wait for more."""
        lending = self._of_run.get(run.id)
        if lending is not None and lending.told:
            message = BlocksRefused(ask=lending.ask.ask, reason="preempted")
            out.append(Send(to=lending.asker, message=message, cause=lending.name))
            self._end(lending, LeaseEvent.REVOKE, out)

    def computed(self, run: TaskRun, out: list[Effect]) -> None:
        """A prefill is complete: lend what was not lent yet; the run is over, the lease holds what
        it held. Whoever waits for the same blocks has them too.
        """
        lending = self._of_run.pop(run.id)
        lending.run = None
        lending.holding = self._scheduler.hand_over(run)
        if lending.state is not LeaseState.LENT:
            self._tell(lending, lending.holding.table, lending.num_blocks, out, hit=run.hit)
        for other in [one for one in self._lendings.values() if one.same(lending)]:
            waiting = other.run
            if waiting is not None and waiting.state in UNADMITTED:
                del self._of_run[waiting.id]
                other.run = None
                self._scheduler.end(waiting)
                if not self._lend_cached(other, out):
                    self._queue(other, waiting.submitted, out)

    def expire(self, now: int, out: list[Effect]) -> None:
        for lending in list(self._lendings.values()):
            if lending.expires <= now:
                self._end(lending, LeaseEvent.EXPIRE, out)

    def check(self) -> None:
        """Raise unless every lending's record fits its state."""
        for key, lending in self._lendings.items():
            name = lending.name
            must(key == (lending.asker, lending.ask.ask), f"{name} is filed as another")
            must(lending.state is not LeaseState.OVER, f"{name} is over and still kept")
            held = lending.holding is not None
            must(held != (lending.run is not None), f"{name} is computed and held, or neither")
            if lending.run is not None:
                must(lending.run.id in self._scheduler.runs, f"{name} waits for a run that ended")
            must(not held or lending.state is LeaseState.LENT, f"{name} is {lending.state}, whole")

    def _refusal(self, message: AskBlocks) -> str:
        count, rest = divmod(len(message.tokens), 4 * BLOCK_TOKENS)
        if message.fingerprint != self._capacity.fingerprint:
            return "another model or arithmetic"
        if rest or not 0 <= message.first < count or not self._knows(array("i", message.tokens)):
            return "not whole blocks of known tokens"
        if count > self._capacity.num_blocks or count * BLOCK_TOKENS >= self._capacity.context_max:
            return "more blocks than there are"
        if self._scheduler.num_waiting >= self._scheduler.config.max_waiting:
            return "too many wait"
        if message.way is Way.REFERENCE:
            num_read = sum(
                one.num_blocks for one in self._lendings.values() if one.ask.way is Way.REFERENCE
            )
            if num_read + count > _READ_IN_PLACE_MAX * self._capacity.num_blocks:
                return CROWDED
        return ""

    def _knows(self, tokens: "array[int]") -> bool:
        """Whether the engine could compute these; it takes the machine's word for it."""
        return min(tokens) >= 0 and max(tokens) < self._capacity.vocab

    def _lend_cached(self, lending: Lending, out: list[Effect]) -> bool:
        """Lend what is in the cache, if that is all of it."""
        holding = self._cache.hold(lending.ask.namespace, lending.tokens + _ONE_MORE)
        if len(holding.table) < lending.num_blocks:
            self._cache.release(holding, lending.tokens, computed=0, index=False)
            return False
        lending.holding = holding
        hit = BLOCK_TOKENS * lending.num_blocks
        self._tell(lending, holding.table, lending.num_blocks, out, hit=hit)
        return True

    def _queue(self, lending: Lending, now: int, out: list[Effect]) -> None:
        """Have the blocks computed; behind another ask for the same ones, if there is one."""
        self._next_task += 1
        task = Task(
            id=TaskId(-self._next_task),
            model="",
            prompt=tuple(lending.tokens),
            sampling=SamplingParameters(max_tokens=1, temperature=0.0, seed=0),
            namespace=lending.ask.namespace,
        )
        before = (one.run.id for one in self._lendings.values() if one.run and one.same(lending))
        submit = SubmitTask(
            task=task, reply=lending.asker, alone=lending.ask.alone, leader=next(before, None)
        )
        run = TaskRun(
            submit,
            order=self._order(),
            now=now,
            context_max=len(task.prompt) + 1,
            prefill_only=True,
        )
        lending.run = run
        self._of_run[run.id] = lending
        self._submit(run, now, out)

    def _tell(
        self,
        lending: Lending,
        table: list[BlockId],
        end: int,
        out: list[Effect],
        *,
        step: int = 0,
        hit: int = 0,
    ) -> None:
        """Tell the asker of the blocks up to `end` that are new to it: they are lent."""
        last = end == lending.num_blocks
        lending.step(LeaseEvent.GRANT_LAST if last else LeaseEvent.GRANT)
        first = max(lending.told, lending.ask.first)
        units, lives = self._cache.refs(table[first:end])
        lending.told = end
        hit = hit if lending.run is None else lending.run.hit
        had = max(hit, BLOCK_TOKENS * lending.ask.first)
        lending.computed = max(0, BLOCK_TOKENS * end - had)
        message = BlocksReady(
            ask=lending.ask.ask,
            memory=self._capacity.reach.memory,
            first=first,
            units=units,
            lives=lives,
            last=last,
            step=step,
            lease_ns=self._lease_ns,
            computed=lending.computed,
        )
        out.append(Send(to=lending.asker, message=message, cause=lending.name))
        values = (("blocks", float(end - first)),)
        labels = (("way", lending.ask.way.value),)
        out.append(Fact(name="kv.lent", values=values, labels=labels, cause=lending.name))

    def _words(self, lending: Lending, holding: Holding) -> BlocksReady:
        """All that is lent, in one message."""
        first = lending.ask.first
        units, lives = self._cache.refs(holding.table[first : lending.num_blocks])
        return BlocksReady(
            ask=lending.ask.ask,
            memory=self._capacity.reach.memory,
            first=first,
            units=units,
            lives=lives,
            lease_ns=self._lease_ns,
            computed=lending.computed,
        )

    def _end(self, lending: Lending, event: LeaseEvent, out: list[Effect]) -> None:
        """Hold nothing for the asker any more, and compute nothing for it."""
        lending.step(event)
        del self._lendings[lending.asker, lending.ask.ask]
        if lending.holding is not None:
            computed = BLOCK_TOKENS * lending.num_blocks
            self._cache.release(lending.holding, lending.tokens, computed=computed)
        run = lending.run
        if run is not None:
            del self._of_run[run.id]
            self._scheduler.end(run)
        if event is not LeaseEvent.RETURN:
            labels = (("reason", event.value),)
            out.append(Fact(name="kv.lease_ended", labels=labels, cause=lending.name))
