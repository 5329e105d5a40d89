"""Several task executors that lend and fetch KV from each other, over a wire that does as told.

The "bytes" of a block are the fake engine's notes. A move copies notes; it can come late, corrupt
or not at all. Messages wait until somebody delivers, doubles or loses them. Blocks have lives: what
a plan or a move begins is written to the owner's directory, and readers look there.
"""

from dataclasses import dataclass, field

from executor_harness import FREE
from fake_engine import BLOCK, expected
from fake_pool import AGENT, MEMORY, FakePool
from peer_engine import ARENA_IDS, PeerEngine, integers

from tercet.messages.effects import Fact, Move, RunStep, Send, Sum, Unmap, Wake
from tercet.messages.events import (
    ArenaLent,
    ArenaWithdrawn,
    Moved,
    MoveEnd,
    PeerGone,
    PeerJoined,
    Received,
    StepDone,
    Summed,
    Woke,
)
from tercet.messages.kv import KvLayout, Reach
from tercet.messages.plan import StepCost, StepPlan
from tercet.messages.wire import CancelTask, ExecutorReady, Members, Role, SubmitTask, TaskUpdates
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import Capacity, TaskExecutorConfig
from tercet.task_executor.machine import TaskExecutor
from tercet.transfer.config import TransferConfig

FRONT = "front/0"
LAYOUT = KvLayout(
    dtype="none", block_tokens=BLOCK, layers=2, kv_heads=1, head_dim=1, block_bytes=64
)
SLOW = StepCost(base_ns=1e4, per_row_ns=1e5, per_logit_ns=0.0, per_pair_ns=0.0)
"""Where a pool can be worth its way."""


@dataclass
class Peer:
    address: str
    machine: TaskExecutor
    engine: PeerEngine
    reach: Reach
    role: Role
    alive: bool = True
    plans: list[StepPlan] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    wakes: dict[str, int] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)
    """Memory -> number of its arena here."""


class World:
    """`names`: executors by number -> role."""

    def __init__(self, roles, *, num_blocks=40, way="auto", local=True, **options):
        self.now = 0
        self.queue: list[tuple[str, str, object]] = []
        self.facts: list[tuple[str, Fact]] = []
        self.tasks, self.owner = {}, {}
        self.tokens, self.ends, self.cached = {}, {}, {}
        self.context_max = options.pop("context_max", 400)
        self.pool = FakePool() if options.pop("pool", False) else None
        self.peers: dict[str, Peer] = {}
        self.links: set[frozenset[str]] = set()
        scheduling = options.pop("scheduling", SchedulingConfig(max_slots=8))
        blocks = num_blocks if isinstance(num_blocks, dict) else dict.fromkeys(roles, num_blocks)
        for number, role in roles.items():
            self._add(number, role, blocks[number], way, scheduling, options)
        self.tell_members()
        for address in self.peers:
            self.link(FRONT, address)
            if self.pool is not None:
                self.link(AGENT, address)
        for one in self.peers:
            for other in self.peers:
                if one < other:
                    self.link(one, other)
        if local:
            for one in self.peers:
                for other in self.peers:
                    if one != other:
                        self.lend(one, other)

    def _add(self, number, role, num_blocks, way, scheduling, options):
        reach = Reach(
            host="local",
            memory=f"local/kv/{number}",
            blocks_at=4096,
            layout=LAYOUT,
            fingerprint="weights",
        )
        machine = TaskExecutor(
            TaskExecutorConfig(front_grace_ns=10**9),
            executor=number,
            capacity=Capacity(
                num_blocks=num_blocks,
                context_max=self.context_max,
                cost=FREE if self.pool is None else SLOW,
                fingerprint="weights",
                reach=reach,
                agent=None if self.pool is None else AGENT,
                value_tokens=0 if self.pool is None else 32,
            ),
            scheduling=scheduling,
            transfer=TransferConfig(way=way, **options),
        )
        engine = PeerEngine(context_max=self.context_max, num_blocks=num_blocks, end_id=7)
        address = f"executor/{number}"
        self.peers[address] = Peer(address, machine, engine, reach, role)

    # events

    def on(self, address, event):
        peer = self.peers[address]
        if not peer.alive:
            return
        effects = peer.machine.on(event, self.now)
        for effect in effects:
            self._take(peer, effect)
        peer.machine.check(whole=True)

    def _take(self, peer, effect):
        match effect:
            case RunStep():
                peer.plans.append(effect.plan)
            case Send(to=to, message=TaskUpdates() as updates) if to == FRONT:
                for update in updates.updates:
                    self._heard(peer, update)
            case Send():
                if frozenset((peer.address, effect.to)) in self.links:
                    self.queue.append((peer.address, effect.to, effect.message))
            case Wake():
                peer.wakes[effect.key] = effect.at
            case Move():
                peer.moves.append(effect)
            case Fact():
                self.facts.append((peer.address, effect))
            case Unmap():
                self._unmap(peer, effect.memory)
            case Sum(ticket=ticket, sources=sources):
                done = Summed(ticket=ticket, checks=(0,) * len(sources))
                self.queue.append((peer.address, peer.address, done))

    def _unmap(self, peer, memory):
        number = peer.lent.pop(memory)
        runs = peer.machine.scheduler.runs.values()
        named = [block for run in runs if run.borrow for block in run.borrow.blocks]
        assert all(block // ARENA_IDS != number for block in named), "it is still read"

    def _heard(self, peer, update):
        number = update.task
        if self.owner.get(number) != peer.address:
            return
        assert number not in self.ends, "words after the end"
        if update.started:
            self.tokens[number] = []
        self.tokens.setdefault(number, []).extend(update.tokens)
        if update.cached_tokens is not None:
            self.cached[number] = update.cached_tokens
        if update.finish is not None:
            self.ends[number] = update

    def tell_members(self):
        executors = tuple(
            ExecutorReady(
                executor=peer.machine.executor,
                epoch=1,
                pid=1,
                role=peer.role,
                model="m",
                cost=FREE,
                num_blocks=1,
                context_max=1,
                reach=peer.reach,
            )
            for peer in self.peers.values()
            if peer.alive
        )
        members = Members(version=1, executors=executors, settled=True)
        for address in self.peers:
            self.on(address, Received(sender="cluster", epoch=1, message=members))

    def link(self, one, other):
        ends = [self.peers.get(end) for end in (one, other)]
        if all(end is None or end.alive for end in ends):
            self.links.add(frozenset((one, other)))
            for address, peer in ((one, other), (other, one)):
                if address in self.peers:
                    self.on(address, PeerJoined(peer=peer, epoch=1))

    def cut(self, one, other):
        """A connection ends; what was on its way is lost."""
        link = frozenset((one, other))
        if link not in self.links:
            return
        self.links.discard(link)
        self.queue = [item for item in self.queue if frozenset(item[:2]) != link]
        for address, peer in ((one, other), (other, one)):
            if address in self.peers:
                self.on(address, PeerGone(peer=peer, epoch=1))

    def lend(self, owner, reader):
        """The reader may read the owner's arena in place."""
        source, target = self.peers[owner], self.peers[reader]
        number = 1 + source.machine.executor
        target.engine.mapped[number] = source.engine
        target.lent[source.reach.memory] = number
        self.on(
            reader,
            ArenaLent(
                memory=source.reach.memory,
                first_block=number * ARENA_IDS,
                num_blocks=source.engine.num_blocks,
            ),
        )

    def kill(self, address):
        peer = self.peers[address]
        peer.alive = False
        for link in [link for link in self.links if address in link]:
            one, other = link
            self.cut(one, other)
        for other in self.peers.values():
            if other.alive and peer.reach.memory in other.lent:
                self.on(other.address, ArenaWithdrawn(memory=peer.reach.memory))
        self.tell_members()

    # what happens

    def submit(self, given, to, *, prefill=None, **options):
        self.tasks[given.id] = given
        self.owner[given.id] = to
        message = SubmitTask(task=given, reply=FRONT, prefill=prefill, **options)
        self.on(to, Received(sender=FRONT, epoch=1, message=message))

    def cancel(self, number):
        self.on(
            self.owner[number],
            Received(sender=FRONT, epoch=1, message=CancelTask(task=number)),
        )

    def deliver(self, at=0, *, keep=False):
        sender, to, message = self.queue[at] if keep else self.queue.pop(at)
        if isinstance(message, Summed):
            self.on(to, message)
        elif to == AGENT and self.pool is not None:
            peer = self.peers[sender]
            answer = self.pool.heard(sender, message, peer.engine if peer.alive else None)
            if answer is not None and frozenset((AGENT, sender)) in self.links:
                self.queue.append((AGENT, sender, answer))
        elif to in self.peers:
            self.on(to, Received(sender=sender, epoch=1, message=message))

    def step(self, address):
        peer = self.peers[address]
        plan = peer.plans.pop(0)
        self.on(address, StepDone(result=peer.engine.run(plan)))

    def can_move(self, move):
        """By layer: not before the source's step has run."""
        source = self._source(move)
        return source is None or not source.alive or source.engine.steps >= move.step

    def move(self, address, at=0, *, end=MoveEnd.DONE):
        """A move ends: as told, if nothing speaks against it."""
        peer = self.peers[address]
        move = peer.moves.pop(at)
        source = self._source(move)
        pooled = move.source.memory == MEMORY
        if not pooled and (source is None or not source.alive or not self.can_move(move)):
            end = MoveEnd.GONE
        units, lives = integers(move.source.units), integers(move.source.lives, "I")
        notes = self.pool.notes if pooled else source and source.engine.notes
        if end is MoveEnd.DONE and not pooled:
            for index, life in zip(units, lives, strict=True):
                if source.engine.lives.get(index) != life:
                    end = MoveEnd.STALE
        targets = zip(integers(move.target.units), integers(move.target.lives, "I"), strict=True)
        for place, (index, life) in enumerate(targets):
            peer.engine.begin(index, life)
            for offset in range(BLOCK):
                note = (-2,)
                if end is MoveEnd.DONE:
                    note = notes.get((units[place], offset))
                peer.engine.notes[index, offset] = note
        size = 0 if end is not MoveEnd.DONE else move.source.size
        moved = Moved(ticket=move.ticket, end=end, size=size, duration_ns=1000, wire="fake")
        self.on(address, moved)

    def _source(self, move):
        for peer in self.peers.values():
            if peer.reach.memory == move.source.memory:
                return peer
        return None

    def wake(self, address, key):
        peer = self.peers[address]
        self.now = max(self.now, peer.wakes.pop(key))
        self.on(address, Woke(key=key))

    def pass_time(self, duration):
        """Let time pass; what comes due in between comes in its turn."""
        end = self.now + duration
        while True:
            due = [
                (at, address, key)
                for address, peer in self.peers.items()
                if peer.alive
                for key, at in peer.wakes.items()
                if at <= end
            ]
            if not due:
                break
            _, address, key = min(due)
            self.wake(address, key)
        self.now = end

    def happen(self):
        """Let what is next come in its order; false if nothing is under way."""
        moved = bool(self.queue)
        while self.queue:
            self.deliver()
        for address, peer in self.peers.items():
            if not peer.alive:
                continue
            ready = [at for at, move in enumerate(peer.moves) if self.can_move(move)]
            if ready:
                self.move(address, ready[0])
                moved = True
            if peer.plans:
                self.step(address)
                moved = True
        return moved

    def settle(self, rounds=2000):
        """Let everything come until nothing is under way but leases and wakes."""
        for _ in range(rounds):
            if not self.happen():
                return
        raise AssertionError("work without end")

    def quiet(self):
        """Everything ends: tasks by their tokens, fetches and leases by patience at the most."""
        for _ in range(12):
            self.settle()
            self.pass_time(3 * 10**9)
        self.settle()
        for address, peer in self.peers.items():
            if not peer.alive:
                continue
            machine = peer.machine
            assert not machine.scheduler.runs, f"{address}: tasks without end"
            assert machine.partners.lender.num_lendings == 0, f"{address}: leases without end"
            assert not machine.partners.asker.num_fetches, f"{address}: fetches without end"
            assert not len(machine.partners.populator), f"{address}: populates without end"
            assert not len(machine.partners.storer), f"{address}: stores without end"
            stats = machine.cache.stats()
            assert stats.held == 0, f"{address}: {stats.held} blocks leaked"
            assert stats.free + stats.cached == stats.total

    def verify(self, number):
        given = self.tasks[number]
        want = expected(given, context_max=self.context_max, end_id=7)
        assert self.tokens.get(number, []) == want, f"task {number}: other tokens"
        assert self.ends[number].finish is not None

    def facts_of(self, name):
        return [fact for _, fact in self.facts if fact.name == name]
