"""Executors that prefill, decode, lend and fetch, under any order, loss and doubling of messages,
moves that fail, broken connections, deaths and time that passes.

Whatever happens: every token is the one that it must be, every task that nobody cancelled ends
once, and after quiet no block is held, no lease and no fetch is left anywhere.
"""

from executor_harness import task
from fake_pool import AGENT
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from peer_world import World

from tercet.jobs.job import Finish
from tercet.messages.events import MoveEnd, Summed
from tercet.messages.wire import Role
from tercet.scheduling.config import SchedulingConfig

PREFILLS = ("executor/1", "executor/2")
DECODES = ("executor/3", "executor/4")
BAD_ENDS = (MoveEnd.CORRUPT, MoveEnd.STALE, MoveEnd.GONE, MoveEnd.LATE)
PICK = st.integers(0, 1000)


class PeerRules(RuleBasedStateMachine):
    """Random events in random order; every machine checks itself wholly after each."""

    @initialize(
        lender_blocks=st.integers(12, 60),
        blocks=st.integers(12, 40),
        way=st.sampled_from(["auto", "auto", "layer", "request"]),
        slots=st.integers(1, 5),
        rows=st.sampled_from([40, 400]),
        passes=st.integers(0, 3),
        fetches=st.integers(1, 5),
        local=st.booleans(),
        pool=st.booleans(),
    )
    def begin(self, lender_blocks, blocks, way, slots, rows, passes, fetches, local, pool):
        roles = dict.fromkeys((1, 2), Role.PREFILL) | dict.fromkeys((3, 4), Role.DECODE)
        self.world = World(
            roles,
            num_blocks=dict.fromkeys((1, 2), lender_blocks) | dict.fromkeys((3, 4), blocks),
            way=way,
            local=local,
            pool=pool,
            max_fetches=fetches,
            context_max=190,
            scheduling=SchedulingConfig(max_slots=slots, max_rows=rows, max_passes=passes),
        )
        self.number = 0
        self.dropped = set()

    @rule(
        base=st.integers(20, 120),
        tails=st.lists(st.lists(st.integers(0, 2), max_size=20), min_size=1, max_size=3),
        new=st.integers(1, 40),
        given=st.integers(0, 20),
        pick=PICK,
        kind=st.sampled_from(["plain", "plain", "alone", "sibling", "here"]),
        namespace=st.sampled_from(["", "", "tenant"]),
    )
    def submit(self, base, tails, new, given, pick, kind, namespace):
        to, lender = DECODES[pick % 2], PREFILLS[pick // 2 % 2]
        if kind == "here":
            to, lender = PREFILLS[pick % 2], DECODES[pick // 2 % 2]
        if not self.world.peers[to].alive:
            return
        first = self.number + 1
        for tail in tails:
            self.number += 1
            prompt = [1] * base + (tails[0] if kind == "sibling" else tail)
            self.world.submit(
                task(
                    self.number,
                    prompt,
                    new=new,
                    generated=[5] * given if given < new else [],
                    namespace=namespace,
                ),
                to,
                prefill=lender,
                alone=kind == "alone",
                leader=first if kind == "sibling" and first != self.number else None,
            )

    @precondition(lambda self: any(peer.plans for peer in self._alive()))
    @rule(pick=PICK, times=st.integers(1, 6))
    def step(self, pick, times):
        for at in range(times):
            busy = [peer for peer in self._alive() if peer.plans]
            if busy:
                self.world.step(busy[(pick + at) % len(busy)].address)

    @precondition(lambda self: self.world.queue)
    @rule(pick=PICK, what=st.sampled_from(["in turn"] * 6 + ["any", "twice", "lost"]))
    def deliver(self, pick, what):
        world = self.world
        if what == "in turn":
            for _ in range(1 + pick % 4):
                if world.queue:
                    world.deliver()
            return
        at = pick % len(world.queue)
        if isinstance(world.queue[at][2], Summed):  # no message: it comes once
            world.deliver(at)
        elif what == "lost":
            del world.queue[at]
        else:
            world.deliver(at, keep=what == "twice")

    @rule(times=st.integers(1, 40))
    def go_on(self, times):
        """Things happen in their order for a while."""
        for _ in range(times):
            if not self.world.happen():
                break

    @precondition(lambda self: any(peer.moves for peer in self._alive()))
    @rule(pick=PICK, bad=st.sampled_from([None] * 5 + list(BAD_ENDS)))
    def move(self, pick, bad):
        movers = [peer for peer in self._alive() if peer.moves]
        peer = movers[pick % len(movers)]
        at = pick % len(peer.moves)
        if bad is None and not self.world.can_move(peer.moves[at]):
            return
        self.world.move(peer.address, at, end=bad or MoveEnd.DONE)

    @precondition(lambda self: self.number)
    @rule(pick=PICK)
    def cancel(self, pick):
        number = pick % self.number + 1
        self.dropped.add(number)
        self.world.cancel(number)

    @rule(pick=PICK, how=st.sampled_from(["cut", "link", "link"]))
    def connection(self, pick, how):
        names = list(self.world.peers)
        one, other = names[pick % 4], names[pick // 4 % 4]
        if one != other:
            (self.world.cut if how == "cut" else self.world.link)(one, other)

    @precondition(lambda self: self.world.pool is not None)
    @rule(
        pick=PICK,
        what=st.sampled_from(["cut", "link", "link", "lose", "forget", "refuse", "take"]),
    )
    def pool(self, pick, what):
        """The agent goes and comes; values cannot be read any more, or were driven out."""
        names, pool = list(self.world.peers), self.world.pool
        if what == "cut":
            self.world.cut(AGENT, names[pick % 4])
        elif what == "link":
            self.world.link(AGENT, names[pick % 4])
        elif what in ("refuse", "take"):
            pool.refuses = what == "refuse"
        elif pool.values:
            namespace, key = list(pool.values)[pick % len(pool.values)]
            if what == "lose":
                pool.lost[key] = None
            else:
                del pool.values[namespace, key]

    @rule(seconds=st.sampled_from([0.1, 1, 3, 6, 12]))
    def wait(self, seconds):
        self.world.pass_time(int(seconds * 1e9))

    @rule(pick=PICK)
    def kill(self, pick):
        """One prefill executor and one decode executor stay."""
        for names, dead in ((PREFILLS, pick % 8 == 0), (DECODES, pick % 8 == 1)):
            if dead and all(self.world.peers[name].alive for name in names):
                self.world.kill(names[pick // 8 % 2])

    def _alive(self):
        return [peer for peer in self.world.peers.values() if peer.alive]

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.quiet()
        for number, given in world.tasks.items():
            end = world.ends.get(number)
            if end is not None and end.finish is Finish.FAILED:
                assert end.failure is not None
            elif end is not None:
                world.verify(number)
            else:
                gone = not world.peers[world.owner[number]].alive
                assert gone or number in self.dropped, f"task {given.id} never ended"


TestPeers = PeerRules.TestCase
TestPeers.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
