"""Everything between an executor and those it gets KV from or lends KV to, behind one door.

neighbours   who they are, what can be read in place
lender       prefills and leases for others
asker        prompts that others compute
"""

from collections.abc import Callable, Iterator

from tercet.base.errors import must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, ExecutorId, TaskId
from tercet.cache.rtc import Rtc
from tercet.messages.effects import Effect
from tercet.messages.events import (
    ArenaLent,
    ArenaWithdrawn,
    Moved,
    PeerGone,
    PeerJoined,
    Received,
    Summed,
)
from tercet.messages.kv import (
    AskBlocks,
    BlocksReady,
    BlocksRefused,
    LeasesStand,
    PoolFound,
    PoolReady,
    PoolStored,
    RenewLeases,
    ReturnBlocks,
)
from tercet.messages.wire import Members
from tercet.scheduling.batch import Planned
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.asking import Asker
from tercet.task_executor.config import Capacity
from tercet.task_executor.lending import Lender
from tercet.task_executor.neighbours import Neighbours
from tercet.task_executor.populating import FIND_NS, Populator
from tercet.task_executor.storing import Storer
from tercet.transfer.config import TransferConfig

WAKE = "partners"


class Partners:
    """Costs nothing while nobody lends or asks."""

    def __init__(
        self,
        config: TransferConfig,
        capacity: Capacity,
        scheduler: Scheduler,
        *,
        executor: ExecutorId,
        order: Callable[[], int],
        wake: Callable[[int, str, list[Effect]], None],
    ) -> None:
        self._renew_ns = int(config.renew_s * 1e9)
        self._num_tickets = 0
        self._wake = wake
        self._armed = False
        self._now = 0
        self._pending: list[Effect] = []
        """Of stores that began within a step's result, and of populates that a plan gave up."""
        self._offered: dict[TaskId, None] = {}
        """Tasks whose prompts were offered to the pool."""
        self._scheduler = scheduler
        self.rtc = Rtc(scheduler.cache, value_tokens=capacity.value_tokens or BLOCK_TOKENS)
        self.neighbours = Neighbours()
        self.populator = Populator(
            config,
            capacity,
            scheduler,
            self.rtc,
            ticket=self._ticket,
            connected=self.neighbours.connected,
        )
        self.storer = Storer(
            config,
            capacity,
            scheduler,
            self.rtc,
            ticket=self._ticket,
            connected=self.neighbours.connected,
        )
        self.lender = Lender(config, capacity, scheduler, order=order, submit=self._submit_prefill)
        self.asker = Asker(
            config,
            capacity,
            scheduler,
            executor=executor,
            neighbours=self.neighbours,
            ticket=self._ticket,
        )

    # of `scheduling.outside.Outside`

    @property
    def num_holding(self) -> int:
        """Leases and fetches that hold blocks."""
        outside = self.lender.num_lent + self.asker.book.num_holding
        return outside + self.rtc.num_populates + self.storer.num_holding

    def give_back(self) -> bool:
        """Free the newest blocks that are only reserved."""
        stores, populates = self.storer, self.populator
        return stores.give_back() or populates.give_back(self._pending) or self.asker.give_back()

    def unblock(self) -> bool:
        """Two executors that reserve for what each computes for the other, or read each other's
        blocks for tasks that have no room, must not wait for each other.
        """
        if self.give_back():
            return True
        self.asker.let_go(self._pending)
        return False

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through all blocks that are held here, each as often as it is held."""
        yield from self.lender.held_blocks()
        yield from self.asker.book.held_blocks()
        yield from self.rtc.held_blocks()
        yield from self.storer.held_blocks()

    def counts(self) -> tuple[tuple[str, float], ...]:
        """Give how many leases, fetches and so on stand, by name."""
        return (
            ("leases", float(self.lender.num_lendings)),
            ("fetches", float(self.asker.num_fetches)),
            ("populates", float(len(self.populator))),
            ("stores", float(len(self.storer))),
            ("peers", float(self.neighbours.num_connected)),
        )

    # tasks

    def wants(self, run: TaskRun, prefill: Address | None) -> bool:
        """Say whether blocks of a new task's prompt are to be fetched before it is queued."""
        return self.asker.wanted(run, prefill) or self.populator.wanted(run)

    def begin(self, run: TaskRun, prefill: Address | None, now: int, out: list[Effect]) -> None:
        """Fetch them; the task was submitted as FETCHING."""
        if prefill is not None and self.asker.wanted(run, prefill):
            self.asker.begin(run, prefill, now, out)
        else:
            self.populator.begin(run, now, out)

    def over(self, run: TaskRun, out: list[Effect]) -> None:
        """A task ended."""
        self._offered.pop(run.id, None)
        self.asker.over(run, out)

    def prompted(self, run: TaskRun) -> None:
        """A step computed parts of a prompt: what is whole now is stored."""
        if run.computed >= run.num_prompt - 1 and run.id not in self._offered:
            self._offered[run.id] = None
            self.storer.offer(run, self._now, self._pending)

    def _submit_prefill(self, run: TaskRun, now: int, out: list[Effect]) -> None:
        fetch = self.populator.wanted(run)
        self._scheduler.submit(run, fetch=fetch)
        if fetch:
            self.populator.begin(run, now, out)

    def pump(self, now: int, out: list[Effect]) -> None:
        """Before planning: what room allows now."""
        self._now = now
        self._flush(out)
        if self.populator.waits:
            self.populator.pump(now, out)
        self.storer.swap(now, out)
        if self.asker.num_fetches:
            self.asker.pump(now, out)
        self._arm(now, out)

    # steps

    def planned(self, planned: Planned, out: list[Effect]) -> None:
        self.lender.planned(planned, out)

    def tell_returns(self, out: list[Effect]) -> None:
        self.asker.tell_returns(out)
        self._flush(out)

    def preempted(self, run: TaskRun, out: list[Effect]) -> None:
        self.lender.preempted(run, out)

    def computed(self, run: TaskRun, out: list[Effect]) -> None:
        self._offered.pop(run.id, None)
        self.lender.computed(run, out)

    # events

    def heard(  # noqa: C901  one case a message
        self, event: Received, now: int, out: list[Effect]
    ) -> None:
        """Take a message of a peer; those for others are passed by."""
        sender = event.sender
        match event.message:
            case Members() as members if sender == "cluster":
                self.neighbours.members(members)
            case AskBlocks() as ask:
                self.lender.asked(ask, sender, event.epoch, now=now, out=out)
            case ReturnBlocks(asks=asks):
                self.lender.returned(asks, sender, out)
            case RenewLeases() as renew:
                self.lender.renewed(renew, sender, now, out)
            case BlocksReady() as ready:
                self.asker.ready(ready, sender, now, out)
            case BlocksRefused() as refused:
                self.asker.refused(refused, sender, now, out)
            case LeasesStand() as stand:
                self.asker.stand(stand, sender, now, out)
            case PoolFound() as found:
                self.populator.found(found, now, out)
            case PoolReady() as ready:
                self.populator.ready(ready, now, out)
            case PoolStored() as stored:
                self.storer.stored(stored, out)
            case _:
                pass

    def took(
        self, event: Moved | Summed | ArenaLent | ArenaWithdrawn, now: int, out: list[Effect]
    ) -> None:
        """Take an event of the driver."""
        match event:
            case Moved(ticket=ticket) if self.populator.owns(ticket):
                self.populator.moved(event, now, out)
            case Moved(ticket=ticket):
                must(self.asker.owns(ticket), f"move {ticket} is nobody's")
                self.asker.moved(event, now, out)
            case Summed(ticket=ticket):
                must(self.storer.owns(ticket), f"sum {ticket} is nobody's")
                self.storer.summed(event, out)
            case ArenaLent():
                self.neighbours.lent(event)
            case ArenaWithdrawn():
                self.neighbours.withdrawn(event, out)

    def joined(self, event: PeerJoined, now: int, out: list[Effect]) -> None:
        """A connection stands; a peer's new self knows nothing of the former one's."""
        if self.neighbours.joined(event.peer, event.epoch):
            self.asker.gone(event.peer, out)
        self.lender.joined(event.peer, event.epoch, out)
        self.asker.joined(event.peer, now, out)

    def gone(self, event: PeerGone, now: int, out: list[Effect]) -> None:
        if self.neighbours.gone(event.peer, event.epoch):
            self.asker.gone(event.peer, out)
            self.lender.gone(event.peer, now)
            self.populator.gone(event.peer, out)
            self.storer.gone(event.peer)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Renew, expire, give up on the silent."""
        self._armed = False
        self.lender.expire(now, out)
        self.asker.woke(now, out)
        self.populator.woke(now, out)
        self.storer.woke(now)

    def check(self) -> None:
        """Raise unless all books are in order; O(asks)."""
        self.lender.check()
        self.asker.check()
        self.populator.check()

    def _flush(self, out: list[Effect]) -> None:
        if self._pending:
            out += self._pending
            self._pending.clear()

    def _ticket(self) -> int:
        self._num_tickets += 1
        return self._num_tickets

    def _arm(self, now: int, out: list[Effect]) -> None:
        waits = self.asker.num_fetches or self.lender.num_lendings
        if not self._armed and (waits or len(self.populator) or len(self.storer)):
            self._armed = True
            look = min(self._renew_ns, FIND_NS) if len(self.populator) else self._renew_ns
            self._wake(now + look, WAKE, out)
