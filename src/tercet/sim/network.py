"""Connections between machines in virtual time: ordered, late, and sometimes cut.

A connection delivers in order, as a socket does. A lost packet makes everything behind it late.
A cut (partition, death of one end) ends the connection: both ends that live see `PeerGone`, what
was under way is lost, and after the cut heals the dialer's retry brings `PeerJoined` to both.

    up ──cut for longer than cut_after──▶ down ──heals, redial──▶ up
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, get_args

from tercet.base.ids import Address, Epoch
from tercet.base.rand import Rand
from tercet.messages.events import PeerGone, PeerJoined, Received
from tercet.messages.kv import KvMessage
from tercet.messages.wire import Message
from tercet.sim.scenario import NetworkSpec
from tercet.sim.timeline import MS, Timeline

REPEATABLE = get_args(KvMessage)
"""Protocols that promise to survive the loss or repetition of single messages."""
PeerEvent = PeerJoined | PeerGone | Received


class End(Protocol):
    """A machine's place on the network."""

    address: Address
    host: str
    epoch: Epoch
    alive: bool

    def deliver(self, event: PeerEvent) -> None: ...


@dataclass(slots=True)
class Link:
    """One connection between two ends; `life` tells messages of a former connection apart."""

    first: End
    second: End
    up: bool = False
    life: int = 0
    cut_until: int = 0
    free_at: dict[Address, int] | None = None
    """By receiver: when the last message that was sent to it arrives."""


class Network:
    """All links of a simulated cluster."""

    def __init__(self, timeline: Timeline, spec: NetworkSpec, rand: Rand) -> None:
        self._timeline = timeline
        self._spec = spec
        self._rand = rand
        self._links: dict[tuple[Address, Address], Link] = {}
        self._losing: tuple[float, int] = (0.0, 0)
        self._doubling: tuple[float, int] = (0.0, 0)
        """The share of repeatable messages that suffer it, and until when."""
        self.dropped = 0
        self.delivered = 0
        self.num_lost = 0
        self.num_doubled = 0

    def connect(self, first: End, second: End) -> None:
        """Dial until it stands; a later end of the same address replaces its former self."""
        key = _key(first.address, second.address)
        former = self._links.get(key)
        if former is not None:
            self._down(former)
        link = Link(first, second)
        self._links[key] = link
        self._dial(link)

    def linked(self, one: Address, other: Address) -> bool:
        """Whether there is, or will be again, a connection between two."""
        return _key(one, other) in self._links

    def hang_up(self, one: Address, other: Address) -> None:
        """End a connection for good."""
        link = self._links.pop(_key(one, other), None)
        if link is not None:
            self._down(link)

    def lose(self, share: float, until: int) -> None:
        """Let so many of the messages about blocks vanish on connections that stand."""
        self._losing = (share, until)

    def double(self, share: float, until: int) -> None:
        """Let so many of them come twice, at once or after others."""
        self._doubling = (share, until)

    def send(self, sender: End, to: Address, message: Message, size: int) -> None:
        """Deliver later, in order; dropped if there is no connection (the contract of `Send`)."""
        link = self._links.get(_key(sender.address, to))
        if link is None or not link.up:
            self.dropped += 1
            return
        if isinstance(message, REPEATABLE):
            if self._suffers(self._losing):
                self.num_lost += 1
                return
            if self._suffers(self._doubling):
                self.num_doubled += 1
                again = self._rand.below(20 * MS) if self._rand.chance(0.5) else 0
                life = link.life

                def repeat() -> None:
                    if link.up and link.life == life:
                        self._put(link, sender, message, size)

                self._timeline.after(again, repeat)
        self._put(link, sender, message, size)

    def _put(self, link: Link, sender: End, message: Message, size: int) -> None:
        spec, now = self._spec, self._timeline.now
        receiver = link.second if link.first is sender else link.first
        delay = int(1000 * (spec.latency_us + spec.jitter_us * self._rand.unit()))
        if link.first.host != link.second.host:
            delay += int(1000 * spec.between_hosts_us)
        delay += int(size * 1000 / spec.bandwidth_mb)
        if spec.loss and self._rand.chance(spec.loss):
            delay += int(spec.retransmit_ms * MS)
        arrivals = link.free_at = link.free_at or {}
        at = max(now + delay, arrivals.get(receiver.address, 0), link.cut_until)
        arrivals[receiver.address] = at
        event = Received(sender=sender.address, epoch=sender.epoch, message=message)
        self._timeline.at(at, self._delivery(link, link.life, receiver, event))

    def _suffers(self, fault: tuple[float, int]) -> bool:
        share, until = fault
        return self._timeline.now < until and self._rand.chance(share)

    def end_died(self, end: End) -> None:
        """Cut every connection of an end that died: the other ends see it at once."""
        for key, link in list(self._links.items()):
            if end in (link.first, link.second):
                self._down(link)
                if self._links.get(key) is link:
                    del self._links[key]

    def cut(self, address: Address, other: Address, until: int) -> None:
        """Let nothing through between two ends until a time."""
        link = self._links.get(_key(address, other))
        if link is None:
            return
        link.cut_until = max(link.cut_until, until)
        patience = int(self._spec.cut_after_ms * MS)
        if until - self._timeline.now > patience:
            life = link.life
            self._timeline.after(patience, lambda: self._give_up(link, life))

    def cut_hosts(self, one: str, other: str, until: int) -> None:
        """Let nothing through between two hosts until a time."""
        for (first, second), link in list(self._links.items()):
            if {link.first.host, link.second.host} == {one, other}:
                self.cut(first, second, until)

    def pairs(self) -> list[tuple[Address, Address]]:
        """Every link, by its ends' addresses, in a stable order."""
        return sorted(self._links)

    def _delivery(
        self,
        link: Link,
        life: int,
        receiver: End,
        event: Received,
    ) -> Callable[[], None]:
        def deliver() -> None:
            if link.up and link.life == life and receiver.alive:
                self.delivered += 1
                receiver.deliver(event)
            else:
                self.dropped += 1

        return deliver

    def _give_up(self, link: Link, life: int) -> None:
        if link.up and link.life == life:
            self._down(link)
            self._dial(link)

    def _down(self, link: Link) -> None:
        if not link.up:
            link.life += 1
            return
        link.up = False
        link.life += 1
        link.free_at = None
        for end, peer in ((link.first, link.second), (link.second, link.first)):
            if end.alive:
                end.deliver(PeerGone(peer=peer.address, epoch=peer.epoch))

    def _dial(self, link: Link) -> None:
        life = link.life

        def attempt() -> None:
            key = _key(link.first.address, link.second.address)
            if link.life != life or link.up or self._links.get(key) is not link:
                return
            if not (link.first.alive and link.second.alive):
                return
            if link.cut_until > self._timeline.now:
                self._timeline.after(int(self._spec.redial_ms * MS), attempt)
                return
            link.up = True
            for end, peer in ((link.first, link.second), (link.second, link.first)):
                end.deliver(PeerJoined(peer=peer.address, epoch=peer.epoch))

        self._timeline.after(int(self._spec.latency_us * 3000), attempt)


def _key(first: Address, second: Address) -> tuple[Address, Address]:
    return (first, second) if first <= second else (second, first)
