"""Prompts that another executor computes: asked for, read in place or copied, and given back.

    task ──▶ DEFERRED ──room──▶ ASKED ──▶ MOVING ──▶ committed, the task hits it
                                  └─────▶ BORROWED: its table begins with the lender's blocks

Whatever goes wrong on the way, the task goes on with what has come and computes the rest here; the
lender hears that nothing is needed any more, again if the connection broke meanwhile.
"""

from array import array
from collections.abc import Callable, Iterator

from tercet.base.errors import InvariantBroken, must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, ExecutorId, TaskId
from tercet.messages.effects import Effect, Fact, Move, Send
from tercet.messages.events import Moved, MoveEnd
from tercet.messages.kv import (
    AskBlocks,
    BlocksReady,
    LeasesStand,
    Reach,
    Way,
)
from tercet.scheduling.run import Borrow, TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState
from tercet.task_executor.config import Capacity
from tercet.task_executor.fetch import WAITS, Fetch
from tercet.task_executor.inflow import Inflow, layout_of, strip_at
from tercet.task_executor.neighbours import Neighbours
from tercet.task_executor.telling import Teller
from tercet.transfer.config import TransferConfig
from tercet.transfer.states import FetchEvent, FetchState


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
        self._config = config
        self._capacity = capacity
        self._scheduler = scheduler
        self._executor = executor
        self._neighbours = neighbours
        self._ticket = ticket
        self._fetches: dict[int, Fetch] = {}
        self._of_run: dict[TaskId, Fetch] = {}
        self._of_move: dict[int, Fetch] = {}
        self._ending: dict[int, Fetch] = {}
        """Borrowed ones whose task is over, while a plan under way may still name it."""
        self._teller = Teller(neighbours)
        self._next_ask = 0

    def __len__(self) -> int:
        return len(self._fetches)

    @property
    def num_holding(self) -> int:
        """Fetches that hold reserved blocks."""
        return sum(fetch.inflow is not None for fetch in self._fetches.values())

    @property
    def active(self) -> bool:
        return bool(self._fetches)

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that fetches hold."""
        for fetch in self._fetches.values():
            if fetch.inflow is not None:
                yield from fetch.inflow.holding.table

    # a task comes, a task goes

    def wanted(self, run: TaskRun, lender: Address | None) -> bool:
        """Say whether a task's prompt shall be asked for; it is queued as FETCHING then."""
        if lender is None or run.suspect or not run.share or not self._neighbours.connected(lender):
            return False
        reach = self._neighbours.reach(lender)
        if reach is None or reach.layout is None or reach.layout != self._capacity.reach.layout:
            return False
        if reach.fingerprint != self._capacity.fingerprint:
            return False
        num_blocks = (len(run.tokens) - 1) // BLOCK_TOKENS
        num_own, _ = self._scheduler.cache.peek(run.task.namespace, run.tokens)
        return num_blocks - num_own >= self._config.min_blocks

    def begin(self, run: TaskRun, lender: Address, now: int, out: list[Effect]) -> None:
        """Ask for the prompt of a task that was submitted as FETCHING."""
        reach = self._neighbours.reach(lender)
        if reach is None:
            raise InvariantBroken(f"{lender} is asked and no member")
        self._next_ask += 1
        fetch = Fetch(
            ask=self._next_ask,
            run=run,
            lender=lender,
            reach=reach,
            way=self._way(reach),
            num_blocks=(len(run.tokens) - 1) // BLOCK_TOKENS,
            began=now,
            heard=now,
        )
        self._fetches[fetch.ask] = self._of_run[run.id] = fetch
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
        for fetch in list(self._fetches.values()):
            if fetch.state is FetchState.DEFERRED and not self._reserve(fetch, now, out):
                return

    # what lenders say

    def ready(self, message: BlocksReady, sender: Address, now: int, out: list[Effect]) -> None:
        """Read what is lent, in place or by moves. What does not fit is a lost or broken word: the
        task computes for itself.
        """
        fetch = self._fetches.get(message.ask)
        if fetch is None or fetch.lender != sender:
            self._teller.over(sender, message.ask, out)
            return
        fetch.heard = now
        if fetch.state is FetchState.ASKED and fetch.inflow is None:
            self._borrow(fetch, message, out)
        elif fetch.state in (FetchState.ASKED, FetchState.MOVING) and fetch.inflow is not None:
            self._pull(fetch, fetch.inflow, message, now=now, out=out)

    def refused(self, ask: int, sender: Address, reason: str, out: list[Effect]) -> None:
        fetch = self._fetches.get(ask)
        if fetch is not None and fetch.lender == sender:
            self._stop(fetch, FetchEvent.FAIL, reason, out)

    def stand(self, message: LeasesStand, sender: Address, now: int, out: list[Effect]) -> None:
        """The lender lives; what it does not know any more is over."""
        known = dict.fromkeys(message.asks)
        for fetch in [one for one in self._fetches.values() if one.lender == sender]:
            if fetch.state is FetchState.DEFERRED:
                continue
            if fetch.ask in known or fetch.began > now - int(self._config.renew_s * 1e9):
                fetch.heard = now
            elif fetch.state is FetchState.BORROWED:
                if fetch.ask not in self._ending:
                    self._lose(fetch, "the lease is over", out)
            elif fetch.state is not FetchState.LEAVING:
                self._stop(fetch, FetchEvent.FAIL, "the lease is over", out)

    def joined(self, peer: Address, out: list[Effect]) -> None:
        """A lender is there (again): tell it what is over, and that the rest still stands."""
        self._teller.joined(peer, out)
        self._teller.renew(peer, self._fetches.values(), out)

    def gone(self, peer: Address, out: list[Effect]) -> None:
        """The connection to a lender ended: what it computes may never come. What is read in place
        stays readable, whatever became of it: the fences tell.
        """
        for fetch in [one for one in self._fetches.values() if one.lender == peer]:
            if fetch.state in WAITS:
                self._stop(fetch, FetchEvent.FAIL, "the lender is gone", out)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Renew all leases; wait no longer for who is silent."""
        silence = int(self._config.silence_s * 1e9)
        for fetch in list(self._fetches.values()):
            waits = fetch.state in (FetchState.ASKED, FetchState.MOVING)
            if waits and now - fetch.heard >= silence:
                self._stop(fetch, FetchEvent.FAIL, "the lender is silent", out)
        for lender in dict.fromkeys(fetch.lender for fetch in self._fetches.values()):
            self._teller.renew(lender, self._fetches.values(), out)

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
        labels = (("wire", event.wire), ("end", event.end.value), ("for", "handover"))
        values = (("bytes", float(event.size)), ("duration_s", event.duration_ns / 1e9))
        out.append(Fact(name="kv.moved", values=values, labels=labels, cause=fetch.run.name))
        if fetch.state is FetchState.LEAVING:
            if not inflow.num_under_way:
                fetch.step(FetchEvent.LANDED)
                self._close(fetch)
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
        """Raise unless every fetch's record fits its state."""
        for ask, fetch in self._fetches.items():
            name = f"fetch {ask} of {fetch.run.name}"
            must(ask == fetch.ask, f"{name} is filed as another")
            must(fetch.state is not FetchState.DONE, f"{name} is done and still kept")
            must(fetch.inflow is None or fetch.way is not Way.REFERENCE, f"{name} reserved blocks")
            waits = fetch.state in WAITS
            fetching = fetch.run.state is RunState.FETCHING
            must(waits == fetching, f"{name} is {fetch.state}, its task {fetch.run.state}")
            leaving = fetch.state is FetchState.LEAVING
            must(
                not leaving or (fetch.inflow and fetch.inflow.num_under_way),
                f"{name} waits for no move",
            )

    # steps

    def _way(self, reach: Reach) -> Way:
        if self._config.way == "auto":
            here = self._neighbours.readable(reach.memory)
            return Way.REFERENCE if here else Way.LAYER
        way = Way(self._config.way)
        if way is Way.REFERENCE and not self._neighbours.readable(reach.memory):
            return Way.REQUEST
        return way

    def _reserve(self, fetch: Fetch, now: int, out: list[Effect]) -> bool:
        """Reserve room and ask; False while there is none. Nobody was asked then."""
        run, cache = fetch.run, self._scheduler.cache
        num_active = sum(one.state is not FetchState.DEFERRED for one in self._fetches.values())
        if num_active - len(self._ending) >= self._config.max_fetches:
            return False
        if fetch.way is not Way.REFERENCE:
            spare = (len(self._scheduler.running) + 1) // 2
            holding = cache.hold(run.task.namespace, run.tokens)
            fetch.inflow = Inflow.reserve(
                cache, holding, run.tokens, num_blocks=fetch.num_blocks, spare=spare
            )
            if fetch.inflow is None:
                cache.release(holding, run.tokens, computed=0, index=False)
                return False
        fetch.step(FetchEvent.RESERVE)
        fetch.heard = fetch.began = now
        message = AskBlocks(
            ask=fetch.ask,
            executor=self._executor,
            namespace=run.task.namespace,
            fingerprint=self._capacity.fingerprint,
            tokens=run.tokens[: BLOCK_TOKENS * fetch.num_blocks].tobytes(),
            first=0 if fetch.inflow is None else min(fetch.inflow.first, fetch.num_blocks - 1),
            way=fetch.way,
        )
        out.append(Send(to=fetch.lender, message=message, cause=run.name))
        return True

    def _borrow(self, fetch: Fetch, message: BlocksReady, out: list[Effect]) -> None:
        indices = array("i", message.units).tolist()
        fits = message.last and not message.first and len(indices) == fetch.num_blocks
        known = fits and message.memory == fetch.reach.memory
        blocks = self._neighbours.read(message.memory, indices) if known else None
        if blocks is None or len(message.lives) != 4 * len(indices):
            self._stop(fetch, FetchEvent.FAIL, "what was lent cannot be read", out)
            return
        fetch.step(FetchEvent.LENT)
        fetch.memory = message.memory
        run = fetch.run
        run.borrow = Borrow(blocks, message.lives)
        run.foreign = message.computed
        self._handed_over(fetch, out)
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
            return  # said twice
        count = len(message.units) // 4
        fits = message.first == inflow.expected and len(message.lives) == 4 * count > 0
        if not fits or message.first + count > fetch.num_blocks or fetch.last:
            self._stop(fetch, FetchEvent.FAIL, "the lender's words have a gap", out)
            return
        if message.last and message.first + count != fetch.num_blocks:
            self._stop(fetch, FetchEvent.FAIL, "the lender lends too little", out)
            return
        fetch.step(FetchEvent.READY)
        fetch.last = message.last
        fetch.run.foreign = message.computed
        layout = layout_of(fetch.reach)
        layers = range(layout.layers) if message.step else (None,)
        tickets = []
        for layer in layers:
            ticket = self._ticket()
            tickets.append(ticket)
            self._of_move[ticket] = fetch
            target = inflow.target(self._capacity.reach, message.first, count, layer=layer)
            out.append(
                Move(
                    ticket=ticket,
                    source=strip_at(fetch.reach, message.units, message.lives, layer=layer),
                    target=target,
                    part_bytes=layout.layer_bytes,
                    check=message.check,
                    step=message.step,
                    layer=0 if layer is None else layer + 1,
                    deadline=now + int(self._config.move_timeout_s * 1e9),
                    cause=fetch.run.name,
                )
            )
        inflow.expect(message.first, count, tickets)

    def _arrive(self, fetch: Fetch, inflow: Inflow, now: int, out: list[Effect]) -> None:
        inflow.commit()
        fetch.step(FetchEvent.ARRIVE)
        self._of_run.pop(fetch.run.id, None)
        self._close(fetch)
        self._teller.over(fetch.lender, fetch.ask, out)
        self._handed_over(fetch, out, (("s", (now - fetch.began) / 1e9),))
        self._scheduler.fetched(fetch.run)

    def _handed_over(
        self, fetch: Fetch, out: list[Effect], values: tuple[tuple[str, float], ...] = ()
    ) -> None:
        labels = (("way", fetch.way.value),)
        more = (("blocks", float(fetch.num_blocks)), *values)
        out.append(Fact(name="kv.handover", values=more, labels=labels, cause=fetch.run.name))

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
            self._close(fetch)
        if asked:
            self._teller.over(fetch.lender, fetch.ask, out)
        if event is FetchEvent.FAIL:
            labels = (("reason", reason), ("peer", fetch.lender))
            out.append(Fact(name="kv.failed", labels=labels, cause=fetch.run.name))
        if fetch.run.state is RunState.FETCHING and event is FetchEvent.FAIL:
            self._scheduler.fetched(fetch.run)

    def _lose(self, fetch: Fetch, reason: str, out: list[Effect]) -> None:
        """What a task reads in place is not its own any more: it computes its prompt itself."""
        self._of_run.pop(fetch.run.id, None)
        self._ending[fetch.ask] = fetch
        labels = (("reason", reason), ("peer", fetch.lender))
        out.append(Fact(name="kv.failed", labels=labels, cause=fetch.run.name))
        self._scheduler.lose_borrowed(fetch.run)

    def _close(self, fetch: Fetch) -> None:
        del self._fetches[fetch.ask]
        if fetch.inflow is not None:
            fetch.inflow.close()
            fetch.inflow = None

    def _sweep(self, out: list[Effect]) -> None:
        """Give back what no plan under way names any more."""
        for fetch in list(self._ending.values()):
            if fetch.run.flights:
                continue
            del self._ending[fetch.ask], self._fetches[fetch.ask]
            fetch.step(FetchEvent.END)
            self._neighbours.done(fetch.memory, out)
            self._teller.over(fetch.lender, fetch.ask, out)
