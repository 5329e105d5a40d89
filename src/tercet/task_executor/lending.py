"""What an executor computes and lends for others: prefills by ask, leases on their blocks.

AskBlocks ──all cached──▶ lent at once
    └──▶ a run that samples nothing ──▶ (by layer: lent plan by plan) ──▶ lent, the run is over
lent blocks are held once more each, until ReturnBlocks, expiry, or another epoch of the asker
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, Epoch, TaskId
from tercet.cache.cache import Cache
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
from tercet.task_executor.config import Capacity
from tercet.transfer.config import TransferConfig
from tercet.transfer.states import LeaseEvent, LeaseState, next_lease_state

Key = tuple[Address, int]
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
    blocks: list[BlockId] = field(default_factory=list)
    """From the first block of the prompt on: what is lent."""
    held: list[BlockId] = field(default_factory=list)
    """Held once more for this ask: the lent ones with all their ancestors in the index."""
    told: int = 0
    """Blocks up to here the asker was told of."""

    @property
    def name(self) -> str:
        return f"lease {self.asker}/{self.ask.ask}"

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
    ) -> None:
        self._config = config
        self._capacity = capacity
        self._scheduler = scheduler
        self._cache: Cache = scheduler.cache
        self._order = order
        self._lease_ns = int(config.lease_s * 1e9)
        self._lendings: dict[Key, Lending] = {}
        self._of_run: dict[TaskId, Lending] = {}
        self._next_task = 0

    @property
    def num_lendings(self) -> int:
        return len(self._lendings)

    @property
    def num_lent(self) -> int:
        """Asks for which blocks are held."""
        return sum(bool(lending.held) for lending in self._lendings.values())

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that leases hold, each as often as it is held."""
        for lending in self._lendings.values():
            yield from lending.held

    def next_expiry(self) -> int | None:
        return min((one.expires for one in self._lendings.values()), default=None)

    # what askers say

    def asked(
        self, message: AskBlocks, sender: Address, epoch: Epoch, *, now: int, out: list[Effect]
    ) -> None:
        """Queue a prefill, or lend at once what is cached, or say why not. Repeated asks change
        nothing: the answer is on its way, or its loss will be noticed.
        """
        key = (sender, message.ask)
        if key in self._lendings:
            return
        reason = self._refusal(message)
        if reason:
            out.append(Send(to=sender, message=BlocksRefused(ask=message.ask, reason=reason)))
            out.append(Fact(name="kv.refused", labels=(("reason", reason),), cause=sender))
            return
        count = len(message.tokens) // (4 * BLOCK_TOKENS)
        lending = Lending(message, sender, epoch, now + self._lease_ns, count)
        self._lendings[key] = lending
        tokens = array("i", message.tokens)
        hit = self._cache.hold(message.namespace, tokens + _ONE_MORE)
        whole = len(hit.table) == count
        if whole:
            self._lend(lending, hit.table, count, out)
        self._cache.release(hit, tokens, computed=0, index=False)
        if not whole:
            self._queue(lending, tokens, now)

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
        out.append(Send(to=sender, message=LeasesStand(asks=tuple(standing)), cause=sender))

    def joined(self, peer: Address, epoch: Epoch, out: list[Effect]) -> None:
        """Another self of an asker is there: what the former one wanted is over."""
        for lending in [one for one in self._lendings.values() if one.asker == peer]:
            if lending.epoch < epoch:
                self._end(lending, LeaseEvent.RENEWED, out)

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
                self._lend(lending, run.holding.table, before, out)
            end = run.computed_ahead // BLOCK_TOKENS
            if end > max(lending.told, lending.ask.first):
                self._lend(lending, run.holding.table, end, out, step=planned.plan.step)

    def computed(self, run: TaskRun, out: list[Effect]) -> None:
        """A prefill is complete: lend what was not lent yet; the run is over."""
        lending = self._of_run.pop(run.id, None)
        if lending is not None and lending.state is not LeaseState.LENT:
            must(run.holding is not None, f"{lending.name}: its run holds nothing")
            if run.holding is not None:
                self._lend(lending, run.holding.table, lending.num_blocks, out)
        if lending is not None:
            lending.run = None
        self._scheduler.end(run)

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
            queued = lending.state is LeaseState.QUEUED
            must(not (queued and lending.held), f"{name} lends before it was granted")
            must(lending.run is not None or not queued, f"{name} waits for nobody")
            lent = lending.state is LeaseState.LENT
            must(not lent or len(lending.blocks) == lending.num_blocks, f"{name} lends too little")

    def _refusal(self, message: AskBlocks) -> str:
        count, rest = divmod(len(message.tokens), 4 * BLOCK_TOKENS)
        if message.fingerprint != self._capacity.fingerprint:
            return "another model or arithmetic"
        if rest or not count or not 0 <= message.first < count:
            return "not whole blocks"
        if count > self._capacity.num_blocks:
            return "more blocks than there are"
        if self._scheduler.num_waiting >= self._scheduler.config.max_waiting:
            return "too many wait"
        return ""

    def _queue(self, lending: Lending, tokens: "array[int]", now: int) -> None:
        self._next_task += 1
        task = Task(
            id=TaskId(-self._next_task),
            model="",
            prompt=tuple(tokens),
            sampling=SamplingParameters(max_tokens=1, temperature=0.0, seed=0),
            namespace=lending.ask.namespace,
        )
        same = (lending.ask.namespace, lending.ask.tokens)
        leader = next(
            (
                number
                for number, one in self._of_run.items()
                if (one.ask.namespace, one.ask.tokens) == same
            ),
            None,
        )
        submit = SubmitTask(task=task, reply=lending.asker, alone=lending.ask.alone, leader=leader)
        run = TaskRun(
            submit,
            order=self._order(),
            now=now,
            context_max=len(tokens) + 1,
            prefill_only=True,
        )
        lending.run = run
        self._of_run[run.id] = lending
        self._scheduler.submit(run)

    def _lend(
        self,
        lending: Lending,
        table: list[BlockId],
        end: int,
        out: list[Effect],
        *,
        step: int = 0,
    ) -> None:
        """Hold the blocks up to `end` for the asker and tell it of those that are new to it."""
        known = len(lending.blocks)
        # A run that was preempted meanwhile may have come back with other blocks: hold them all,
        # since whoever holds a block of the index holds its ancestors.
        first_new = known if table[:known] == lending.blocks else 0
        for block in table[first_new:end]:
            self._cache.pool.hold(block)
            lending.held.append(block)
        lending.blocks += table[known:end]
        last = end == lending.num_blocks
        lending.step(LeaseEvent.GRANT_LAST if last else LeaseEvent.GRANT)
        first = max(lending.told, lending.ask.first)
        blocks = lending.blocks[first:end]
        lending.told = end
        units, lives = self._cache.refs(blocks)
        hit = 0 if lending.run is None else lending.run.hit
        computed = 0 if lending.run is None else BLOCK_TOKENS * end - hit
        message = BlocksReady(
            ask=lending.ask.ask,
            memory=self._capacity.reach.memory,
            first=first,
            units=units,
            lives=lives,
            last=last,
            step=step,
            lease_ns=self._lease_ns,
            computed=computed,
        )
        out.append(Send(to=lending.asker, message=message, cause=lending.name))
        values = (("blocks", float(len(blocks))),)
        labels = (("way", lending.ask.way.value),)
        out.append(Fact(name="kv.lent", values=values, labels=labels, cause=lending.name))

    def _end(self, lending: Lending, event: LeaseEvent, out: list[Effect]) -> None:
        """Hold nothing for the asker any more, and compute nothing for it."""
        lending.step(event)
        del self._lendings[lending.asker, lending.ask.ask]
        pool = self._cache.pool
        for block in reversed(lending.held):
            pool.drop(block)
        run = lending.run
        if run is not None:
            self._of_run.pop(run.id, None)
            if run.id in self._scheduler.runs:
                self._scheduler.end(run)
        if event is not LeaseEvent.RETURN:
            labels = (("reason", event.value),)
            out.append(Fact(name="kv.lease_ended", labels=labels, cause=lending.name))
