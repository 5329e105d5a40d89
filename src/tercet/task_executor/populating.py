"""Values of the pool for tasks that come: found, weighed, wanted, moved in, committed.

FINDING ─PoolFound─▶ worth it? ─no──────────────────────────────────────────▶ the task goes on
                         └─yes, room─▶ WANTED ─PoolReady, Moved ...─▶ committed ─▶ it hits them
silence, refusals, corrupt values: what came before them is committed, the rest is computed
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tercet.base.errors import InvariantBroken, must
from tercet.base.ids import BLOCK_TOKENS, Address, BlockId, TaskId
from tercet.cache.economy import Economy, Trip
from tercet.messages.effects import Effect, Fact, Move, Send
from tercet.messages.events import Moved, MoveEnd
from tercet.messages.kv import PoolDone, PoolFind, PoolFound, PoolReady, PoolValue, PoolWant
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.scheduling.states import RunState
from tercet.task_executor.config import Capacity
from tercet.task_executor.inflow import Inflow, layout_of
from tercet.task_executor.weighing import queue_ns, saved_ns
from tercet.transfer.config import TransferConfig

KEY_BYTES = 16
NUM_POPULATES_MAX = 256
FIND_NS = 1_000_000_000
"""An agent that says nothing for so long has nothing."""
SOURCES = {"d": "dram", "s": "ssd", "D": "DRAM", "S": "SSD"}
"""Names of tiers for the economy; upper case: on another host."""


@dataclass(slots=True)
class _Populate:
    """One task's values."""

    ask: int
    run: TaskRun
    first: int
    """The first value that is asked for: those before it are cached here."""
    until: int
    tiers: str = ""
    limit: int = 0
    """So many values are still hoped for."""
    trip: Trip | None = None
    wanted: int = 0
    wanted_at: int = 0
    next: int = 0
    """The value with which the next range begins."""
    inflow: Inflow | None = None
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
        *,
        ticket: Callable[[], int],
        connected: Callable[[Address], bool],
    ) -> None:
        self.economy = Economy()
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
        self._next_ask = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def num_holding(self) -> int:
        """Those that hold reserved blocks."""
        return sum(one.inflow is not None for one in self._all.values())

    def held_blocks(self) -> Iterator[BlockId]:
        """Go through the blocks that are reserved."""
        for one in self._all.values():
            if one.inflow is not None:
                yield from one.inflow.holding.table

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
        """Ask; the task was submitted as FETCHING."""
        self._next_ask += 1
        tokens, first = self._capacity.value_tokens, self._first(run)
        populate = _Populate(self._next_ask, run, first, now + FIND_NS)
        self._all[populate.ask] = self._of_run[run.id] = populate
        count = (len(run.tokens) - 1) // tokens
        keys = self._scheduler.cache.keys_for(
            run.task.namespace, run.tokens[: count * tokens], tokens
        )
        message = PoolFind(
            ask=populate.ask,
            namespace=run.task.namespace,
            keys=b"".join(keys[first:]),
            reply=self._address,
        )
        self._say(message, run.name, out)

    def pump(self, out: list[Effect]) -> None:
        """Let go of values whose tasks have ended."""
        for populate in list(self._all.values()):
            if not populate.over and populate.run.state is RunState.ENDED:
                self._leave(populate, out)

    def give_back(self, out: list[Effect]) -> bool:
        """Give up the newest populate to which nothing is on its way yet; false: there is none."""
        for populate in reversed(self._all.values()):
            inflow = populate.inflow
            if inflow is not None and not inflow.num_under_way:
                self._leave(populate, out)
                return True
        return False

    # what the agent says

    def found(self, message: PoolFound, now: int, out: list[Effect]) -> None:
        """Weigh what there is; reserve room for what is worth its way, and want it."""
        populate = self._all.get(message.ask)
        if populate is None or populate.over or populate.inflow is not None:
            return
        run, per = populate.run, self._per_value
        most = (len(run.tokens) - 1) // self._capacity.value_tokens - populate.first
        populate.tiers = message.tiers[:most]
        count = self._worth(populate)
        out.append(
            Fact(
                name="pool.weighed",
                values=(("found", float(len(populate.tiers))), ("taken", float(count))),
                cause=run.name,
            )
        )
        cache = self._scheduler.cache
        start = BLOCK_TOKENS * per * populate.first
        holding = cache.hold(run.task.namespace, run.tokens[: start + 1])
        spare = (len(self._scheduler.running) + 1) // 2
        inflow = None
        if count and len(holding.table) == per * populate.first:
            inflow = Inflow.reserve(
                cache,
                holding,
                run.tokens,
                num_blocks=per * (populate.first + count),
                spare=spare,
            )
        if inflow is None:
            cache.release(holding, run.tokens, computed=0, index=False)
            self._leave(populate, out)
            return
        populate.inflow, populate.limit = inflow, count
        populate.trip = self.economy.begin(self._pieces(populate)[:count])
        populate.wanted, populate.wanted_at = count, now
        populate.until = now + self._patience_ns
        self._say(PoolWant(ask=populate.ask, count=count), run.name, out)

    def ready(self, message: PoolReady, now: int, out: list[Effect]) -> None:
        """Move values in, in their order; what cannot be had ends the run of them."""
        populate = self._all.get(message.ask)
        if populate is None or populate.over or populate.inflow is None:
            return
        populate.until = now + self._patience_ns
        for place, value in enumerate(message.values, message.first):
            if value is None:
                populate.limit = min(populate.limit, place)
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
        inflow = populate.inflow
        if inflow is None:
            raise InvariantBroken(f"populate {populate.ask} moves into nothing")
        good = event.end is MoveEnd.DONE
        inflow.moved(event.ticket, good=good)
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
            hit = (("tier", SOURCES[tier].lower()),)
            out.append(Fact(name="pool.hits", values=(("values", 1.0),), labels=hit, cause=name))
        if not good or (populate.next >= populate.wanted and not inflow.num_under_way):
            self._arrived(populate, now)
        self._look(populate, out)

    def woke(self, now: int, out: list[Effect]) -> None:
        """Wait no longer for who is silent."""
        for populate in list(self._all.values()):
            if not populate.over and now >= populate.until:
                populate.limit = populate.next
                self._arrived(populate, now)
                self._look(populate, out, late=True)

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
            fetching = populate.run.state is RunState.FETCHING
            must(populate.over or fetching, f"{name}: its task is {populate.run.state}")
            must(
                not populate.over or (populate.inflow and populate.inflow.num_under_way),
                f"{name} is over and waits for no move",
            )

    # steps

    @property
    def _address(self) -> Address:
        return self._capacity.agent or Address("")

    def _first(self, run: TaskRun) -> int:
        """The first value that is not cached here as a whole."""
        num_blocks, _ = self._scheduler.cache.peek(run.task.namespace, run.tokens)
        return num_blocks // self._per_value

    def _worth(self, populate: _Populate) -> int:
        """Weigh every leading part of what was found against computing it."""
        if self._choice == "always":
            return len(populate.tiers)
        run, tokens = populate.run, self._capacity.value_tokens
        begun = populate.first * tokens
        saved = saved_ns(
            self._scheduler.pace.cost,
            begun=begun,
            ends=[begun + count * tokens for count in range(1, len(populate.tiers) + 1)],
            known=len(run.tokens),
            step_ns_max=self._scheduler.config.step_ns_max,
        )
        queue = queue_ns(self._scheduler, run)
        return self.economy.worth(self._pieces(populate), saved, queue_ns=queue)

    def _pieces(self, populate: _Populate) -> list[tuple[str, int]]:
        size = self._per_value * layout_of(self._capacity.reach).block_bytes
        return [(SOURCES.get(tier, "SSD"), size) for tier in populate.tiers]

    def _arrived(self, populate: _Populate, now: int) -> None:
        """Learn what the way took: from the wish to the last value, loads from SSD included."""
        if populate.trip is not None:
            good = populate.limit == populate.wanted
            self.economy.end(populate.trip, now - populate.wanted_at, good=good)
            populate.trip = None

    def _pull(self, populate: _Populate, value: PoolValue, *, now: int, out: list[Effect]) -> None:
        place, per, inflow = populate.next, self._per_value, populate.inflow
        if inflow is None:
            raise InvariantBroken(f"populate {populate.ask} has no room")
        populate.next += 1
        first = per * (populate.first + place)
        target = inflow.target(self._capacity.reach, first, per)
        if value.source.size != target.size:
            populate.limit = min(populate.limit, place)  # another layout: none of ours
            return
        ticket = self._ticket()
        self._of_move[ticket] = (populate, place)
        inflow.expect(first, per, [ticket])
        out.append(
            Move(
                ticket=ticket,
                source=value.source,
                target=target,
                part_bytes=layout_of(self._capacity.reach).layer_bytes,
                check=value.check,
                deadline=now + self._move_ns,
                cause=populate.run.name,
            )
        )

    def _look(self, populate: _Populate, out: list[Effect], *, late: bool = False) -> None:
        """End what has all that can be hoped for."""
        inflow = populate.inflow
        if inflow is None:
            if late and not populate.over:
                self._leave(populate, out)
            return
        if inflow.num_under_way:
            return
        if populate.over:
            self._close(populate, out)
        elif populate.next >= populate.limit:
            self._leave(populate, out)

    def _leave(self, populate: _Populate, out: list[Effect]) -> None:
        """Commit what came; the task goes on if it still waits."""
        del self._of_run[populate.run.id]
        populate.over = True
        self._arrived(populate, populate.wanted_at)
        inflow, run = populate.inflow, populate.run
        if inflow is not None:
            inflow.commit()
        if run.state is RunState.FETCHING and run.id in self._scheduler.runs:
            self._scheduler.fetched(run)
        if inflow is None or not inflow.num_under_way:
            self._close(populate, out)

    def _close(self, populate: _Populate, out: list[Effect]) -> None:
        del self._all[populate.ask]
        if populate.inflow is not None:
            populate.inflow.close()
            populate.inflow = None
        if populate.tiers:
            done = PoolDone(ask=populate.ask, broken=tuple(populate.broken))
            self._say(done, populate.run.name, out)

    def _say(self, message: PoolFind | PoolWant | PoolDone, cause: str, out: list[Effect]) -> None:
        if self._capacity.agent is not None:
            out.append(Send(to=self._capacity.agent, message=message, cause=cause))
