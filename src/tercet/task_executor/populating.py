"""Values of the pool for tasks that come: found, weighed, wanted, moved in, committed.

FINDING ─PoolFound─▶ worth it? ─no──────────────────────────────────────────▶ the task goes on
             ▲           ├─yes, room─▶ WANTED ─PoolReady, Moved ...─▶ committed ─▶ it hits them
             │           └─yes, no room─▶ it goes on, and waits its turn
             └──── prefetch, while it waits still ◀──────┘
silence, refusals, corrupt values: what came before them is committed, the rest is computed
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tercet.base.errors import InvariantBroken, must
from tercet.base.ids import BLOCK_TOKENS, Address, TaskId
from tercet.cache.economy import Trip
from tercet.cache.rtc import Fetch, Rtc
from tercet.messages.effects import Effect, Fact, Move, Send
from tercet.messages.events import Moved, MoveEnd
from tercet.messages.kv import PoolDone, PoolFind, PoolFound, PoolReady, PoolValue, PoolWant
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState
from tercet.task_executor.config import Capacity
from tercet.task_executor.inflow import layout_of, strip_at
from tercet.task_executor.prefetching import Prefetcher
from tercet.task_executor.weighing import queue_ns, saved_ns
from tercet.transfer.config import TransferConfig

NUM_POPULATES_MAX = 256
FIND_NS = 1_000_000_000
"""An agent that says nothing for so long has nothing."""
SOURCES = {"d": "dram", "s": "ssd", "D": "DRAM", "S": "SSD"}
"""Names of tiers for the economy; upper case: on another host."""
_WAITS = (RunState.FETCHING, RunState.WAITING)


@dataclass(slots=True)
class _Populate:
    """One task's values."""

    ask: int
    run: TaskRun
    behind: int
    """So many values were cached here when it was asked."""
    keys: list[bytes]
    """Of the values behind them."""
    until: int
    ahead: bool = False
    """A prefetch: its task waits for its turn, not for this."""
    tiers: str = ""
    first: int = 0
    """Place in `keys` of the ticket's first value."""
    ticket: int | None = None
    fetches: dict[int, Fetch] = field(default_factory=dict)
    """Reserved, by place in `keys`; no move of theirs was begun."""
    num_moving: int = 0
    limit: int = 0
    """Values up to this place are still hoped for."""
    trip: Trip | None = None
    wanted: int = 0
    wanted_at: int = 0
    next: int = 0
    """The value that is to be moved next."""
    ready: dict[int, PoolValue] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)
    over: bool = False
    """Its task waits no more; moves under way have still to end."""


class Populator:
    """All populates of one executor; `ticket` numbers moves over the whole machine."""

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
        self._rtc = rtc
        self._capacity = capacity
        self._scheduler = scheduler
        self._ticket = ticket
        self._connected = connected
        self._patience_ns = int(config.silence_s * 1e9)
        self._choice = config.populate
        self._move_ns = int(config.move_timeout_s * 1e9)
        self._per_value = max(1, capacity.value_tokens // BLOCK_TOKENS)
        self._all: dict[int, _Populate] = {}
        self._of_run: dict[TaskId, _Populate] = {}
        self._of_move: dict[int, tuple[_Populate, int]] = {}
        self.prefetcher = Prefetcher(scheduler, rtc)
        self._next_ask = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def waits(self) -> bool:
        """Whether there is anything to look after."""
        return bool(self._all or self.prefetcher.waits)

    # a task comes, a task goes

    def wanted(self, run: TaskRun) -> bool:
        """Say whether the pool shall be asked for parts of the task's tokens."""
        agent, tokens = self._capacity.agent, self._capacity.value_tokens
        if not tokens or agent is None or run.suspect or not run.share or run.leader is not None:
            return False
        if self._choice == "never":
            return False
        if len(self._all) >= NUM_POPULATES_MAX or not self._connected(agent):
            return False
        return (len(run.tokens) - 1) // tokens > self._first(run)

    def begin(self, run: TaskRun, now: int, out: list[Effect]) -> None:
        """Ask; the task was submitted as FETCHING, or waits its turn."""
        self._next_ask += 1
        first = self._first(run)
        keys = self._rtc.keys(run.task.namespace, run.tokens)[first:]
        ahead = run.state is not RunState.FETCHING
        populate = _Populate(self._next_ask, run, first, keys, now + FIND_NS, ahead)
        self._all[populate.ask] = self._of_run[run.id] = populate
        message = PoolFind(
            ask=populate.ask,
            namespace=run.task.namespace,
            keys=b"".join(keys),
            reply=self._address,
        )
        self._say(message, run.name, out)

    def pump(self, now: int, out: list[Effect]) -> None:
        """Let go of values that nobody waits for; ask again for those that had no room."""
        for populate in list(self._all.values()):
            if not populate.over and populate.run.state not in _WAITS:
                self._leave(populate, out)
        for run in self.prefetcher.due(now, spare=self._spare):
            if run.id not in self._of_run and self.wanted(run):
                self.begin(run, now, out)

    def give_back(self, out: list[Effect]) -> bool:
        """Give up the newest populate to which nothing is on its way yet; false: there is none."""
        for populate in reversed(self._all.values()):
            if populate.ticket is not None and not populate.num_moving:
                self._leave(populate, out)
                return True
        return False

    # what the agent says

    def found(self, message: PoolFound, now: int, out: list[Effect]) -> None:
        """Weigh what there is; reserve room for what is worth its way, and want it."""
        populate = self._all.get(message.ask)
        if populate is None or populate.over or populate.ticket is not None:
            return
        run, keys = populate.run, populate.keys
        populate.tiers = message.tiers[: len(keys)]
        self._note(populate)
        # Others may have computed or driven out some meanwhile.
        here = self._first(run) - populate.behind
        useful = run.state in _WAITS and 0 <= here < len(populate.tiers)
        count = self._worth(populate, here) if useful else 0
        values = (("found", float(len(populate.tiers))), ("taken", float(count)))
        out.append(Fact(name="pool.weighed", values=values, cause=run.name))
        begun = None
        if count:
            spare = self._spare
            begun = self._rtc.populate(run.task.namespace, run.tokens, count=count, spare=spare)
            if begun is None:
                self.prefetcher.short[run.id] = run
        if begun is None:
            self._leave(populate, out)
            return
        populate.ticket, fetches = begun
        populate.fetches = {here + fetch.place: fetch for fetch in fetches}
        populate.first = populate.next = here
        populate.limit = populate.wanted = here + count
        populate.trip = self._rtc.economy.begin(self._pieces(populate, here)[:count])
        populate.wanted_at, populate.until = now, now + self._patience_ns
        self._say(PoolWant(ask=populate.ask, count=here + count), run.name, out)

    def ready(self, message: PoolReady, now: int, out: list[Effect]) -> None:
        """Move values in, in their order; what cannot be had ends the run of them."""
        populate = self._all.get(message.ask)
        if populate is None or populate.over or populate.ticket is None:
            return
        populate.until = now + self._patience_ns
        for place, value in enumerate(message.values, message.first):
            if value is None:
                populate.limit = min(populate.limit, place)
                if place < len(populate.keys):
                    self._rtc.copies.lost(populate.keys[place])
            elif place >= populate.next:
                populate.ready[place] = value
        while populate.next < populate.limit and populate.next in populate.ready:
            self._pull(populate, populate.ready.pop(populate.next), now=now, out=out)
        self._look(populate, out)

    # what moves say

    def owns(self, ticket: int) -> bool:
        return ticket in self._of_move

    def moved(self, event: Moved, now: int, out: list[Effect]) -> None:
        """A value came, or did not: what is behind one that did not is of no use."""
        populate, place = self._of_move.pop(event.ticket)
        if populate.ticket is None:
            raise InvariantBroken(f"populate {populate.ask} moves into nothing")
        good = event.end is MoveEnd.DONE
        populate.num_moving -= 1
        self._rtc.moved(populate.ticket, place - populate.first, good=good)
        tier = populate.tiers[place]
        if not good:
            populate.limit = min(populate.limit, place)
            if event.end is MoveEnd.CORRUPT:
                populate.broken.append(place)
        values = (("bytes", float(event.size)), ("duration_s", event.duration_ns / 1e9))
        labels = (("wire", event.wire), ("end", event.end.value), ("for", "populate"))
        name = populate.run.name
        out.append(Fact(name="kv.moved", values=values, labels=labels, cause=name))
        if good:
            populate.until = now + self._patience_ns
            hit = (("tier", SOURCES.get(tier, "SSD").lower()),)
            out.append(Fact(name="pool.hits", values=(("values", 1.0),), labels=hit, cause=name))
        if not good or (populate.next >= populate.wanted and not populate.num_moving):
            self._arrived(populate, now)
        self._look(populate, out)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Wait no longer for who is silent."""
        for populate in list(self._all.values()):
            if not populate.over and now >= populate.until:
                populate.limit = min(populate.limit, populate.next)
                self._arrived(populate, now)
                self._leave(populate, out)  # what is under way still may come, for others

    def gone(self, peer: Address, out: list[Effect]) -> None:
        """The agent is away: nothing more will be told."""
        if peer == self._capacity.agent:
            for populate in list(self._all.values()):
                if not populate.over:
                    populate.limit = populate.next
                    self._look(populate, out, late=True)

    def next_look(self) -> int | None:
        """Give when somebody has been silent for too long."""
        return min((one.until for one in self._all.values() if not one.over), default=None)

    def check(self) -> None:
        """Raise unless every record fits its state."""
        for populate in self._all.values():
            name = f"populate {populate.ask} of {populate.run.name}"
            waits = populate.ahead or populate.run.state is RunState.FETCHING
            must(populate.over or waits, f"{name}: its task is {populate.run.state}")
            moving = populate.ticket is not None and populate.num_moving
            must(not populate.over or moving, f"{name} is over and waits for no move")

    # steps

    @property
    def _address(self) -> Address:
        return self._capacity.agent or Address("")

    @property
    def _spare(self) -> int:
        """Blocks that are left to those that run."""
        return (len(self._scheduler.running) + 1) // 2

    def _first(self, run: TaskRun) -> int:
        """The first value that is not cached here as a whole."""
        num_blocks, _ = self._scheduler.cache.peek(run.task.namespace, run.tokens)
        return num_blocks // self._per_value

    def _note(self, populate: _Populate) -> None:
        """Remember what is where. What lies behind a gap is of no use before the gap is filled: it
        is offered to the pool again as well.
        """
        copies, tiers = self._rtc.copies, populate.tiers
        for place, key in enumerate(populate.keys):
            if place < len(tiers):
                copies.note(key, SOURCES.get(tiers[place], "SSD"))
            else:
                copies.lost(key)

    def _worth(self, populate: _Populate, here: int) -> int:
        """Weigh every leading part of what was found behind what is here against computing it."""
        pieces = self._pieces(populate, here)
        if self._choice == "always":
            return len(pieces)
        run, tokens = populate.run, self._capacity.value_tokens
        begun = self._first(run) * tokens
        saved = saved_ns(
            self._scheduler.pace.cost,
            begun=begun,
            ends=[begun + count * tokens for count in range(1, len(pieces) + 1)],
            known=len(run.tokens),
            step_ns_max=self._scheduler.config.step_ns_max,
        )
        queue = queue_ns(self._scheduler, run)
        return self._rtc.economy.worth(pieces, saved, queue_ns=queue)

    def _pieces(self, populate: _Populate, here: int) -> list[tuple[str, int]]:
        size = self._per_value * layout_of(self._capacity.reach).block_bytes
        return [(SOURCES.get(tier, "SSD"), size) for tier in populate.tiers[here:]]

    def _arrived(self, populate: _Populate, now: int) -> None:
        """Learn what the way took: from the wish to the last value, loads from SSD included."""
        if populate.trip is not None:
            good = populate.limit == populate.wanted
            self._rtc.economy.end(populate.trip, now - populate.wanted_at, good=good)
            populate.trip = None

    def _pull(self, populate: _Populate, value: PoolValue, *, now: int, out: list[Effect]) -> None:
        place = populate.next
        fetch, reach = populate.fetches[place], self._capacity.reach
        populate.next += 1
        units = self._rtc.cache.pool.indices(fetch.blocks)
        target = strip_at(reach, units, fetch.lives)
        if value.source.size != target.size:
            populate.limit = min(populate.limit, place)  # another layout: none of ours
            return
        del populate.fetches[place]
        ticket = self._ticket()
        self._of_move[ticket] = (populate, place)
        populate.num_moving += 1
        out.append(
            Move(
                ticket=ticket,
                source=value.source,
                target=target,
                part_bytes=layout_of(reach).layer_bytes,
                check=value.check,
                deadline=now + self._move_ns,
                cause=populate.run.name,
            )
        )

    def _look(self, populate: _Populate, out: list[Effect], *, late: bool = False) -> None:
        """End what has all that can be hoped for."""
        if populate.ticket is None:
            if late and not populate.over:
                self._leave(populate, out)
        elif populate.num_moving:
            return
        elif populate.over:
            self._close(populate, out)
        elif populate.next >= populate.limit:
            self._leave(populate, out)

    def _leave(self, populate: _Populate, out: list[Effect]) -> None:
        """Keep what came; the task goes on if it still waits."""
        if self._of_run.get(populate.run.id) is populate:
            del self._of_run[populate.run.id]
        populate.over = True
        self._arrived(populate, populate.wanted_at)
        if populate.ticket is not None:
            for fetch in populate.fetches.values():
                self._rtc.skip(populate.ticket, fetch.place)
        populate.fetches = {}
        run = populate.run
        if run.state is RunState.FETCHING and run.id in self._scheduler.runs:
            self._scheduler.fetched(run)
        if not populate.num_moving:
            self._close(populate, out)

    def _close(self, populate: _Populate, out: list[Effect]) -> None:
        del self._all[populate.ask]
        if populate.ticket is not None:
            self._rtc.free(populate.ticket)
            populate.ticket = None
        if populate.tiers:
            done = PoolDone(ask=populate.ask, broken=tuple(populate.broken))
            self._say(done, populate.run.name, out)

    def _say(self, message: PoolFind | PoolWant | PoolDone, cause: str, out: list[Effect]) -> None:
        if self._capacity.agent is not None:
            out.append(Send(to=self._capacity.agent, message=message, cause=cause))
