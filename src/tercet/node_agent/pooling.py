"""The pool's part of a node agent: a share, if this host keeps one, and the way to all others.

    executor of this host ──▶ router ──┬──▶ own share          (a call, no message)
                                       └──▶ agent of another host
    another host's agent  ──▶ share

Without a share, and without hosts that keep one, every question is answered "nothing" at once.
"""

from collections.abc import Callable

from tercet.base.ids import Address
from tercet.messages.effects import Effect, Fact, Send, Wake
from tercet.messages.events import (
    Moved,
    NodeAgentEvent,
    PeerGone,
    Received,
    SlabScanned,
    Woke,
)
from tercet.messages.kv import (
    Host,
    PoolDone,
    PoolFind,
    PoolFound,
    PoolPut,
    PoolReady,
    PoolStored,
    PoolWant,
)
from tercet.messages.wire import Members, Message
from tercet.node_agent.pool_rehoming import Rehoming
from tercet.node_agent.pool_router import PoolRouter
from tercet.node_agent.pool_shard import PoolShard
from tercet.pool.config import PoolConfig
from tercet.pool.store import StoreStats, check_store, stats_of

WAKE = "pool"
SWEEP_NS = 50_000_000
STATS_NS = 10_000_000_000
AGENT = "agent/"

PoolMessage = PoolFind | PoolFound | PoolWant | PoolReady | PoolDone | PoolPut | PoolStored


class Pooling:
    """Takes the pool's messages, moves and time from the agent's machine."""

    def __init__(self, config: PoolConfig, *, address: Address, ticket: Callable[[], int]) -> None:
        self._own = address
        self._router = PoolRouter(config, own=address, say=self._say)
        self._shard: PoolShard | None = None
        self._rehoming: Rehoming | None = None
        host = address.removeprefix(AGENT)
        if config.on:
            shard = PoolShard(config, host=host, ticket=ticket, answer=self._answer)
            self._shard = shard
            self._rehoming = Rehoming(config, shard, own=address, say=self._say)
            self._router.set_hosts({host: address})
        self._now = 0
        self._wakes_at: int | None = None
        self._told_at = 0

    @property
    def keeps_share(self) -> bool:
        return self._shard is not None

    @property
    def is_busy(self) -> bool:
        """Whether something of it ends with time."""
        busy = self._router.is_busy or (self._shard is not None and self._shard.is_busy)
        return busy or (self._rehoming is not None and self._rehoming.is_busy)

    def stats(self) -> StoreStats | None:
        """What the share holds now."""
        return None if self._shard is None else stats_of(self._shard.store)

    def on(self, event: NodeAgentEvent, now: int, out: list[Effect]) -> bool:
        """Take an event; False if it concerns others (too)."""
        self._now = now
        taken = self._on(event, now, out)
        self._wake(now, out)
        return taken

    def _on(self, event: NodeAgentEvent, now: int, out: list[Effect]) -> bool:
        match event:
            case Moved():
                return self._shard is not None and self._shard.moved(event, now, out)
            case Received(sender=sender, message=message) if isinstance(message, PoolMessage):
                self._take(message, sender, now, out)
            case Received(sender="cluster", message=Members(hosts=hosts)):
                self._hosts(hosts, out)
            case SlabScanned():
                if self._shard is not None:
                    self._shard.scanned(event, now, out)
            case Woke(key="pool"):
                self._woke(now, out)
            case PeerGone(peer=peer):
                self._gone(peer, now, out)
                return False
            case _:
                return False
        return True

    def _take(self, message: PoolMessage, sender: Address, now: int, out: list[Effect]) -> None:
        if sender == self._own or sender.startswith(AGENT):
            self._serve(message, sender, now, out)
            return
        router = self._router
        match message:
            case PoolFind():
                router.find(sender, message, now, out)
            case PoolWant():
                router.want(sender, message, now, out)
            case PoolDone():
                router.done(sender, message, now, out)
            case PoolPut():
                router.put(sender, message, now, out)
            case PoolFound() | PoolReady() | PoolStored():
                pass  # executors answer nothing

    def _serve(self, message: PoolMessage, sender: Address, now: int, out: list[Effect]) -> None:
        """A question to the share, or the answer of one."""
        match message:
            case PoolFound():
                self._router.found(sender, message, now, out)
            case PoolReady():
                self._router.ready(sender, message, now, out)
            case PoolStored():
                if self._rehoming is None or not self._rehoming.stored(sender, message):
                    self._router.stored(sender, message, now, out)
            case PoolFind() | PoolWant() | PoolDone() | PoolPut():
                self._ask_share(message, sender, now, out)

    def _ask_share(
        self,
        message: PoolFind | PoolWant | PoolDone | PoolPut,
        sender: Address,
        now: int,
        out: list[Effect],
    ) -> None:
        shard = self._shard
        match message:
            case PoolFind():
                if shard is not None:
                    shard.find(message, now, out)
                else:
                    self._answer(sender, PoolFound(ask=message.ask, tiers=""), out)
            case PoolPut():
                if shard is not None:
                    shard.put(message, now, out)
                else:
                    self._answer(sender, PoolStored(put=message.put, stored=0), out)
            case PoolWant():
                if shard is not None:
                    shard.want(sender, message, now, out)
            case PoolDone():
                if shard is not None:
                    shard.done(sender, message, out)

    def _hosts(self, hosts: tuple[Host, ...], out: list[Effect]) -> None:
        """The list of hosts; values whose home is another now are offered to it."""
        agents = {host.name: host.agent for host in hosts if host.pooled}
        if agents == self._router.agents:
            return
        self._router.set_hosts(agents)
        if self._rehoming is not None:
            self._rehoming.begin()
        labels = (("hosts", str(len(agents))),)
        out.append(Fact(name="pool.hosts", labels=labels))

    def _gone(self, peer: Address, now: int, out: list[Effect]) -> None:
        """A peer is gone, and with it what it asked, answered or was offered."""
        self._router.gone(peer, now, out)
        if self._shard is not None:
            self._shard.gone(peer)
        if self._rehoming is not None:
            self._rehoming.gone(peer)

    def _woke(self, now: int, out: list[Effect]) -> None:
        """See what is over."""
        self._wakes_at = None
        self._router.sweep(now, out)
        if self._shard is not None:
            self._shard.sweep(now, out)
        if self._rehoming is not None:
            self._rehoming.step(self._router.placement, self._router.agents, now, out)
        self._tell(now, out)

    def check(self) -> None:
        """Raise unless what is held and reserved is known of."""
        if self._shard is not None and self._rehoming is not None:
            self._shard.check_sums(self._rehoming.held())

    def check_all(self) -> None:
        """And every value; O(values)."""
        self.check()
        if self._shard is not None:
            check_store(self._shard.store)

    def _say(self, to: Address, message: Message, now: int, out: list[Effect]) -> None:
        if to != self._own:
            out.append(Send(to=to, message=message, cause=WAKE))
        elif isinstance(message, PoolMessage):
            self._serve(message, self._own, now, out)

    def _answer(self, to: Address, message: Message, out: list[Effect]) -> None:
        self._say(to, message, self._now, out)

    def _wake(self, now: int, out: list[Effect]) -> None:
        busy = self.is_busy
        if busy and self._wakes_at is None:
            self._wakes_at = now + SWEEP_NS
            out.append(Wake(at=self._wakes_at, key=WAKE, cause=WAKE))

    def _tell(self, now: int, out: list[Effect]) -> None:
        """Say now and then how full it is."""
        stats = self.stats()
        if stats is None or now - self._told_at < STATS_NS:
            return
        self._told_at = now
        disk = stats.disk
        values = (
            ("values", float(stats.values)),
            ("index_bytes", float(stats.index_bytes)),
            ("dram_used", float(stats.dram.segments.used)),
            ("dram_total", float(stats.dram.segments.total)),
            ("dram_fragmentation", stats.dram.segments.fragmentation),
            ("dram_evictions", float(stats.dram.evictions)),
            ("disk_used", float(disk.segments.used if disk else 0)),
            ("disk_total", float(disk.segments.total if disk else 0)),
            ("disk_evictions", float(disk.evictions if disk else 0)),
        )
        out.append(Fact(name="pool.share", values=values))
