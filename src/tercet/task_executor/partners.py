"""Everything between an executor and those it gets KV from or lends KV to, behind one door.

neighbours   who they are, what can be read in place
lender       prefills and leases for others
asker        prompts that others compute
"""

from collections.abc import Callable, Iterator

from tercet.base.errors import must
from tercet.base.ids import Address, BlockId, ExecutorId
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
        self.neighbours = Neighbours()
        self.lender = Lender(config, capacity, scheduler, order=order)
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
        return self.lender.num_lent + self.asker.num_holding

    def give_back(self) -> bool:
        """Free the newest blocks that are only reserved."""
        return self.asker.give_back()

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through all blocks that are held here, each as often as it is held."""
        yield from self.lender.held_blocks()
        yield from self.asker.held_blocks()

    def counts(self) -> tuple[tuple[str, float], ...]:
        """Give how many leases, fetches and so on stand, by name."""
        return (
            ("leases", float(self.lender.num_lendings)),
            ("fetches", float(self.asker.num_fetches)),
            ("peers", float(self.neighbours.num_connected)),
        )

    # tasks

    def wants(self, run: TaskRun, prefill: Address | None) -> bool:
        """Say whether blocks of a new task's prompt are to be fetched before it is queued."""
        return self.asker.wanted(run, prefill)

    def begin(self, run: TaskRun, prefill: Address | None, now: int, out: list[Effect]) -> None:
        """Fetch them; the task was submitted as FETCHING."""
        if prefill is not None:
            self.asker.begin(run, prefill, now, out)

    def over(self, run: TaskRun, out: list[Effect]) -> None:
        """A task ended."""
        self.asker.over(run, out)

    def pump(self, now: int, out: list[Effect]) -> None:
        """Before planning: what room allows now."""
        if self.asker.num_fetches:
            self.asker.pump(now, out)
        self._arm(now, out)

    # steps

    def planned(self, planned: Planned, out: list[Effect]) -> None:
        self.lender.planned(planned, out)

    def tell_returns(self, out: list[Effect]) -> None:
        self.asker.tell_returns(out)

    def preempted(self, run: TaskRun, out: list[Effect]) -> None:
        self.lender.preempted(run, out)

    def computed(self, run: TaskRun, out: list[Effect]) -> None:
        self.lender.computed(run, out)

    def stale(self, run: TaskRun, out: list[Effect]) -> None:
        self.asker.stale(run, out)

    # events

    def heard(self, event: Received, now: int, out: list[Effect]) -> None:
        """Take a message of a peer; those for others are passed by."""
        sender = event.sender
        match event.message:
            case Members() as members:
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
            case _:
                pass

    def took(
        self, event: Moved | Summed | ArenaLent | ArenaWithdrawn, now: int, out: list[Effect]
    ) -> None:
        """Take an event of the driver."""
        match event:
            case Moved(ticket=ticket):
                must(self.asker.owns(ticket), f"move {ticket} is nobody's")
                self.asker.moved(event, now, out)
            case Summed(ticket=ticket):
                must(False, f"sum {ticket} is nobody's")
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

    def woke(self, now: int, out: list[Effect]) -> None:
        """Renew, expire, give up on the silent."""
        self._armed = False
        self.lender.expire(now, out)
        self.asker.woke(now, out)

    def check(self) -> None:
        """Raise unless all books are in order; O(asks)."""
        self.lender.check()
        self.asker.check()

    def _ticket(self) -> int:
        self._num_tickets += 1
        return self._num_tickets

    def _arm(self, now: int, out: list[Effect]) -> None:
        if not self._armed and (self.asker.num_fetches or self.lender.num_lendings):
            self._armed = True
            self._wake(now + self._renew_ns, WAKE, out)
