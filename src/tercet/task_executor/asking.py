"""Prompts that another executor computes: asked for, read in place or copied, and given back.

    task ──▶ DEFERRED ──room──▶ ASKED ──▶ MOVING ──▶ committed, the task hits it
                                  └─────▶ BORROWED: its table begins with the lender's blocks

Whatever goes wrong on the way, the task goes on with what has come and computes the rest here; the
lender hears that nothing is needed any more, again if the connection broke meanwhile.
"""

from array import array
from collections.abc import Callable

from tercet.base.errors import InvariantBroken
from tercet.base.ids import BLOCK_TOKENS, Address, ExecutorId, TaskId
from tercet.messages.effects import Effect, Fact, Send
from tercet.messages.events import Moved, MoveEnd
from tercet.messages.kv import BlocksReady, BlocksRefused, LeasesStand, Way
from tercet.scheduling.run import Borrow, TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState
from tercet.task_executor.config import Capacity
from tercet.task_executor.fetch import WAITS, Fetch, Fetches, asks
from tercet.task_executor.inflow import Inflow, behind, pulled
from tercet.task_executor.lending import CROWDED
from tercet.task_executor.neighbours import Neighbours
from tercet.task_executor.telling import Teller, failure_fact, handover_fact, move_fact
from tercet.task_executor.ways import Ways, readable
from tercet.transfer.config import TransferConfig
from tercet.transfer.states import FetchEvent, FetchState

TAKEN_BACK_MAX = 2
"""So often the blocks of a fetch are taken back before its task computes for itself."""


class Asker:
    """All fetches from prefill executors; `ticket` numbers moves over the whole machine."""

    def __init__(
        self,
        config: TransferConfig,
        capacity: Capacity,
        scheduler: Scheduler,
        *,
        executor: ExecutorId,
        neighbours: Neighbours,
        ticket: Callable[[], int],
    ) -> None:
        self._config, self._capacity = config, capacity
        self._scheduler, self._executor = scheduler, executor
        self._neighbours = neighbours
        self._ticket = ticket
        self.book = Fetches()
        self.ways = Ways(config, scheduler, neighbours)
        self._of_run: dict[TaskId, Fetch] = {}
        self._of_move: dict[int, Fetch] = {}
        self._ending: dict[int, Fetch] = {}
        """Borrowed ones whose task is over, while a plan under way may still name it."""
        self._returns: list[tuple[int, Address]] = []
        """Asks that were taken back; their lenders are still to be told."""
        self._teller = Teller(neighbours)
        self._lease_ns = int(config.lease_s * 1e9)
        self._renew_ns = int(config.renew_s * 1e9)

    @property
    def num_fetches(self) -> int:
        return len(self.book)

    # a task comes, a task goes

    def wanted(self, run: TaskRun, lender: Address | None) -> bool:
        """Say whether a task's prompt shall be asked for; it is queued as FETCHING then."""
        if lender is None or run.suspect or not run.share or not self._neighbours.connected(lender):
            return False
        reach = self._neighbours.reach(lender)
        if reach is None or not readable(reach, self._capacity):
            return False
        num_blocks = (len(run.tokens) - 1) // BLOCK_TOKENS
        num_own, _ = self._scheduler.cache.peek(run.task.namespace, run.tokens)
        return num_blocks - num_own >= self._config.min_blocks

    def begin(self, run: TaskRun, lender: Address, now: int, out: list[Effect]) -> None:
        """Ask for the prompt of a task that was submitted as FETCHING."""
        reach = self._neighbours.reach(lender)
        if reach is None:
            raise InvariantBroken(f"{lender} is asked and no member")
        fetch = Fetch(
            ask=0,
            run=run,
            lender=lender,
            reach=reach,
            way=self.ways.to(lender, reach, run),
            num_blocks=(len(run.tokens) - 1) // BLOCK_TOKENS,
            began=now,
            heard=now,
        )
        self._of_run[run.id] = fetch
        self.book.file(fetch)
        if len(self.book.deferred()) == 1:
            self._reserve(fetch, now, out)

    def over(self, run: TaskRun, out: list[Effect]) -> None:
        """A task has ended, or reads nothing of others any more."""
        fetch = self._of_run.pop(run.id, None)
        if fetch is None:
            return
        if fetch.state is FetchState.BORROWED:
            self._ending[fetch.ask] = fetch
            self._sweep(out)
        else:
            self._stop(fetch, FetchEvent.END, "the task ended", out)

    def pump(self, now: int, out: list[Effect]) -> None:
        """Reserve for those that wait for room, first come first, and let go of what is done."""
        if self._ending:
            self._sweep(out)
        for fetch in self.book.deferred():
            if not self._reserve(fetch, now, out):
                return

    def tell_returns(self, out: list[Effect]) -> None:
        """Tell lenders of what was taken back while a step was planned."""
        for ask, lender in self._returns:
            self._teller.over(lender, ask, out)
        self._returns.clear()

    def give_back(self) -> bool:
        """Take the blocks of the newest fetch to which nothing is on its way yet; it is asked for
        again when there is room, or, if that happens again, computed here.
        """
        for fetch in self.book.newest():
            if fetch.state is FetchState.ASKED and fetch.inflow is not None:
                break
        else:
            return False
        self._returns.append((fetch.ask, fetch.lender))
        fetch.num_taken_back += 1
        fetch.step(FetchEvent.TAKE_BACK)
        self.book.close(fetch)
        if fetch.num_taken_back > TAKEN_BACK_MAX:
            fetch.step(FetchEvent.FAIL)
            del self._of_run[fetch.run.id]
            self._scheduler.fetched(fetch.run)
        else:
            self.book.file(fetch)
        return True

    def let_go(self, out: list[Effect]) -> None:
        """Read nothing in place for tasks that have no room: their lenders may need theirs."""
        for fetch in self.book.idle_readers():
            if fetch.ask not in self._ending:
                self._lose(fetch, "there is no room to read them", out)

    # what lenders say

    def ready(self, message: BlocksReady, sender: Address, now: int, out: list[Effect]) -> None:
        """Read what is lent, in place or by moves. What does not fit is a lost or broken word: the
        task computes for itself.
        """
        fetch = self.book.get(message.ask)
        if fetch is None or fetch.lender != sender:
            self._teller.over(sender, message.ask, out)
            return
        fetch.heard = now
        if fetch.state is FetchState.ASKED and fetch.inflow is None:
            self._borrow(fetch, message, now, out)
        elif fetch.state in (FetchState.ASKED, FetchState.MOVING) and fetch.inflow is not None:
            self._pull(fetch, fetch.inflow, message, now=now, out=out)

    def refused(self, message: BlocksRefused, sender: Address, now: int, out: list[Effect]) -> None:
        """Nothing (more) will come; a copy may, where too much is read in place."""
        fetch, reason = self.book.get(message.ask), message.reason
        if fetch is None or fetch.lender != sender:
            return
        if fetch.state is FetchState.ASKED and reason == CROWDED and fetch.inflow is None:
            fetch.step(FetchEvent.TAKE_BACK)
            self.book.close(fetch)
            fetch.way = Way.LAYER
            self.book.file(fetch)
            self._reserve(fetch, now, out)
        elif fetch.state is FetchState.BORROWED:
            if fetch.ask not in self._ending:
                self._lose(fetch, reason, out)
        elif fetch.state in WAITS:
            self._stop(fetch, FetchEvent.FAIL, reason, out)

    def stand(self, message: LeasesStand, sender: Address, now: int, out: list[Effect]) -> None:
        """The lender lives; what it does not know any more is over."""
        known = dict.fromkeys(message.asks)
        for fetch in self.book.of(sender):
            if fetch.ask in known:
                fetch.heard = now
                fetch.stands_until = max(fetch.stands_until, message.said + self._lease_ns)
            elif fetch.began >= message.said or fetch.state is FetchState.DEFERRED:
                fetch.heard = now
            elif fetch.state is FetchState.BORROWED:
                if fetch.ask not in self._ending:
                    self._lose(fetch, "the lease is over", out)
            elif fetch.state is not FetchState.LEAVING:
                self._stop(fetch, FetchEvent.FAIL, "the lease is over", out)

    def joined(self, peer: Address, now: int, out: list[Effect]) -> None:
        """A lender is there: tell it what is over, and that the rest still stands."""
        self._teller.joined(peer, out)
        self._teller.renew(peer, self.book.all(), now, out)

    def gone(self, peer: Address, out: list[Effect]) -> None:
        """The connection to a lender ended: what it computes may never come. What is read in place
        stays readable, whatever became of it: the fences tell.
        """
        for fetch in self.book.of(peer):
            if fetch.state in WAITS:
                self._stop(fetch, FetchEvent.FAIL, "the lender is gone", out)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Renew all leases; wait no longer for who is silent."""
        silence = int(self._config.silence_s * 1e9)
        for fetch in self.book.all():
            waits = fetch.state in (FetchState.ASKED, FetchState.MOVING)
            if waits and now - fetch.heard >= silence:
                self._stop(fetch, FetchEvent.FAIL, "the lender is silent", out)
            elif waits and not fetch.last:
                self._ask(fetch, out)  # a word of it may have been lost
            elif fetch.state is FetchState.BORROWED and fetch.ask not in self._ending:
                # What its owner cannot write to any more needs no lease.
                owned = self._neighbours.readable(fetch.memory)
                if owned and fetch.stands_until <= now + self._renew_ns:
                    self._lose(fetch, "the lease was not renewed", out)
        for lender in self.book.lenders():
            self._teller.renew(lender, self.book.all(), now, out)

    # what moves and steps say

    def owns(self, ticket: int) -> bool:
        return ticket in self._of_move

    def moved(self, event: Moved, now: int, out: list[Effect]) -> None:
        """A move ended: commit when all are here; stop at the first that failed."""
        fetch = self._of_move.pop(event.ticket)
        inflow = fetch.inflow
        if inflow is None:
            raise InvariantBroken(f"fetch {fetch.ask} moves into nothing")
        good = event.end is MoveEnd.DONE
        inflow.moved(event.ticket, good=good)
        fetch.timed(event)
        out.append(move_fact(event, "handover", cause=fetch.run.name))
        if fetch.state is FetchState.LEAVING:
            if not inflow.num_under_way:
                fetch.step(FetchEvent.LANDED)
                self.book.close(fetch)
        elif not good:
            self._stop(fetch, FetchEvent.FAIL, event.end.value, out)
        elif fetch.last and inflow.arrived:
            self._arrive(fetch, inflow, now, out)

    def stale(self, run: TaskRun, out: list[Effect]) -> None:
        """A step found that the borrowed blocks are others now; the run lost them already."""
        fetch = self._of_run.pop(run.id, None)
        if fetch is not None and fetch.state is FetchState.BORROWED:
            self._ending[fetch.ask] = fetch
            out.append(Fact(name="kv.stale", labels=(("peer", fetch.lender),), cause=run.name))

    def check(self) -> None:
        self.book.check()

    # steps

    def _reserve(self, fetch: Fetch, now: int, out: list[Effect]) -> bool:
        """Reserve room and ask; False while there is none. Nobody was asked then."""
        run, cache = fetch.run, self._scheduler.cache
        run.deferred = False
        max_passes = self._scheduler.config.max_passes
        starves = self._scheduler.queue.starves_before(run, max_passes=max_passes)
        if starves or self.book.num_waited_for >= self._config.max_fetches:
            return False
        if fetch.way is not Way.REFERENCE:
            if self.book.comes(fetch):
                return True  # for a sibling; the next look finds them here
            spare = (len(self._scheduler.running) + 1) // 2
            holding = cache.hold(run.task.namespace, run.tokens)
            if len(holding.table) >= fetch.num_blocks:
                cache.release(holding, run.tokens, computed=0, index=False)
                self._stop(fetch, FetchEvent.ARRIVE, "", out)
                return True
            fetch.inflow = Inflow.reserve(
                cache, holding, run.tokens, num_blocks=fetch.num_blocks, spare=spare
            )
            if fetch.inflow is None:
                run.deferred = True
                cache.release(holding, run.tokens, computed=0, index=False)
                return False
        self.book.begun(fetch)
        fetch.step(FetchEvent.RESERVE)
        fetch.heard, fetch.began, fetch.stands_until = now, now, 0
        self._ask(fetch, out)
        return True

    def _ask(self, fetch: Fetch, out: list[Effect]) -> None:
        message = asks(fetch, self._executor, self._capacity.fingerprint)
        out.append(Send(to=fetch.lender, message=message, cause=fetch.run.name))

    def _borrow(self, fetch: Fetch, message: BlocksReady, now: int, out: list[Effect]) -> None:
        fits = message.last and not message.first and message.memory == fetch.reach.memory
        fits = fits and len(message.units) == len(message.lives) == 4 * fetch.num_blocks
        indices = array("i", message.units).tolist() if fits else []
        blocks = self._neighbours.read(message.memory, indices) if fits else None
        if blocks is None:
            self._stop(fetch, FetchEvent.FAIL, "what was lent cannot be read", out)
            return
        fetch.step(FetchEvent.LENT)
        fetch.stands_until = max(fetch.stands_until, fetch.began + self._lease_ns)
        fetch.memory = message.memory
        run = fetch.run
        run.borrow = Borrow(blocks, message.lives)
        run.foreign = message.computed
        out.append(handover_fact(fetch, now))
        self._scheduler.fetched(run)

    def _pull(
        self,
        fetch: Fetch,
        inflow: Inflow,
        message: BlocksReady,
        *,
        now: int,
        out: list[Effect],
    ) -> None:
        if message.first < inflow.expected and fetch.state is FetchState.MOVING:
            if fetch.last or not message.last:
                return  # said twice
            message = behind(message, inflow.expected)  # asked again
        count = len(message.units) // 4
        left = fetch.num_blocks - message.first - count
        fits = message.first == inflow.expected and (left == 0 if message.last else left >= 0)
        fits = fits and len(message.units) == len(message.lives) == 4 * count > 0
        if not fits or fetch.last:
            self._stop(fetch, FetchEvent.FAIL, "the lender's words have a gap", out)
            return
        fetch.step(FetchEvent.READY)
        fetch.last = message.last
        fetch.run.foreign = message.computed
        moves = pulled(
            inflow,
            message,
            source=fetch.reach,
            own=self._capacity.reach,
            deadline=now + int(self._config.move_timeout_s * 1e9),
            ticket=self._ticket,
        )
        out += moves
        tickets = [move.ticket for move in moves]
        self._of_move.update(dict.fromkeys(tickets, fetch))
        inflow.expect(message.first, count, tickets)

    def _arrive(self, fetch: Fetch, inflow: Inflow, now: int, out: list[Effect]) -> None:
        inflow.commit()
        self.ways.learn(fetch.lender, fetch.fastest)
        fetch.step(FetchEvent.ARRIVE)
        self._of_run.pop(fetch.run.id, None)
        self.book.close(fetch)
        self._teller.over(fetch.lender, fetch.ask, out)
        out.append(handover_fact(fetch, now))
        self._scheduler.fetched(fetch.run)

    def _stop(self, fetch: Fetch, event: FetchEvent, reason: str, out: list[Effect]) -> None:
        """The fetch is over before its time; its task goes on with what has come."""
        asked = fetch.state is not FetchState.DEFERRED
        moving = fetch.state is FetchState.MOVING
        if fetch.inflow is not None and moving:
            fetch.inflow.commit()
        fetch.step(event)
        self._of_run.pop(fetch.run.id, None)
        inflow = fetch.inflow
        if fetch.state is FetchState.LEAVING and inflow and not inflow.num_under_way:
            fetch.step(FetchEvent.LANDED)
        if fetch.state is FetchState.DONE:
            self.book.close(fetch)
        if asked:
            self._teller.over(fetch.lender, fetch.ask, out)
        if event is FetchEvent.FAIL:
            out.append(failure_fact(fetch, reason))
        if fetch.run.state is RunState.FETCHING and event is not FetchEvent.END:
            self._scheduler.fetched(fetch.run)

    def _lose(self, fetch: Fetch, reason: str, out: list[Effect]) -> None:
        """What a task reads in place is not its own any more: it computes its prompt itself."""
        self._of_run.pop(fetch.run.id, None)
        self._ending[fetch.ask] = fetch
        out.append(failure_fact(fetch, reason))
        self._scheduler.lose_borrowed(fetch.run)

    def _sweep(self, out: list[Effect]) -> None:
        """Give back what no plan under way names any more."""
        for fetch in list(self._ending.values()):
            if fetch.run.flights:
                continue
            del self._ending[fetch.ask]
            self.book.close(fetch)
            fetch.step(FetchEvent.END)
            self._neighbours.done(fetch.memory, out)
            self._teller.over(fetch.lender, fetch.ask, out)
