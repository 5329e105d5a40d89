"""A machine under the virtual driver: events in, effects out, timers, and ways to suffer.

A node can be dead (it hears nothing any more), frozen (it hears later what it would have heard
now) or have a clock that runs ahead. Only `Effect`s that the machine emits change anything.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tercet.base.errors import InvariantBroken
from tercet.base.ids import Address, Epoch
from tercet.messages.effects import Effect, Send, Wake
from tercet.messages.events import Received, Woke
from tercet.sim.journal import Journal
from tercet.sim.network import Network
from tercet.sim.timeline import Timeline


class AnyMachine(Protocol):
    """One of the four machines; the node trusts its host to send it events of its own union."""

    def on(self, event: Any, now: int) -> list[Effect]: ...

    def check(self) -> None: ...


@dataclass(frozen=True)
class World:
    """What all nodes share."""

    timeline: Timeline
    network: Network
    journal: Journal
    nodes: "dict[Address, Node]" = field(default_factory=dict)
    after_turn: "list[Callable[[Node, Any, list[Effect]], None]]" = field(default_factory=list)
    """Checkers that look at every turn: the node, the event, its effects."""


class Node:
    """One machine and its host process, seen from outside."""

    def __init__(
        self,
        world: World,
        address: Address,
        machine: AnyMachine,
        *,
        epoch: Epoch,
        carry_out: Callable[[Effect], None],
    ) -> None:
        self.world = world
        self.address = address
        self.host = ""
        """Where its process runs."""
        self.machine = machine
        self.epoch = epoch
        self.alive = True
        self.began = False
        """It has heard something."""
        self.clock_ahead = 0
        self.before_turn: Callable[[Any], None] = lambda _: None
        """What the process does beside its machine when an event comes."""
        self.frozen_since: int | None = None
        self._carry_out = carry_out
        self._frozen_until = 0
        self._inbox: deque[Any] = deque()
        self._timers: dict[str, tuple[int, int]] = {}
        """By key: when it rings on the machine's own clock, and which one it is."""
        self._num_timers = 0
        self._busy = False
        world.nodes[address] = self

    @property
    def now(self) -> int:
        """The machine's own clock."""
        return self.world.timeline.now + self.clock_ahead

    @property
    def frozen(self) -> bool:
        return self._frozen_until > self.world.timeline.now

    def deliver(self, event: Any) -> None:
        """Give the machine an event now, or when it thaws, or after the turn it is in."""
        if not self.alive:
            return
        self._inbox.append(event)
        if not self._busy and not self.frozen:
            self._drain()

    def freeze(self, duration: int) -> None:
        """Hear nothing for a while, then everything at once."""
        if self.frozen_since is None:
            self.frozen_since = self.now
        self._frozen_until = max(self._frozen_until, self.world.timeline.now + duration)
        self.world.timeline.at(self._frozen_until, self._thaw)

    def jump(self, duration: int) -> None:
        """Let the machine's clock step ahead; timers that are due then ring at once."""
        self.clock_ahead += duration
        for key in self._timers:
            self._arm(key)

    @property
    def thaws_in(self) -> int:
        return max(0, self._frozen_until - self.world.timeline.now)

    def perform(self, effect: Effect) -> None:
        """Carry out an effect: of the machine, or of the process around it."""
        size = self.world.journal.effect(self.now, self.address, effect)
        if isinstance(effect, Send):
            self._send(effect, size)
        elif isinstance(effect, Wake):
            self._wake(effect)
        else:
            self._carry_out(effect)

    def die(self) -> None:
        """End without a word."""
        self.alive = False
        self._inbox.clear()
        self._timers.clear()
        if self.world.nodes.get(self.address) is self:
            del self.world.nodes[self.address]
        self.world.network.end_died(self)

    def _thaw(self) -> None:
        if not self.frozen:
            self.frozen_since = None
            self._drain()

    def _drain(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox and self.alive and not self.frozen:
                self._turn(self._inbox.popleft())
        finally:
            self._busy = False

    def _turn(self, event: Any) -> None:
        world, now = self.world, self.now
        self.began = True
        world.journal.event(now, self.address, event)
        self.before_turn(event)
        try:
            effects = self.machine.on(event, now)
        except InvariantBroken as broken:
            raise InvariantBroken(
                f"{self.address} over {type(event).__name__}: {broken}"
            ) from broken
        for effect in effects:
            self.perform(effect)
        for look in world.after_turn:
            look(self, event, effects)

    def _send(self, effect: Send, size: int) -> None:
        local = self.world.nodes.get(effect.to)
        if local is not None and together(self.address, effect.to):
            local.deliver(
                Received(sender=self.address, epoch=self.epoch, message=effect.message),
            )
        else:
            self.world.network.send(self, effect.to, effect.message, size)

    def _wake(self, effect: Wake) -> None:
        self._num_timers += 1
        self._timers[effect.key] = (effect.at, self._num_timers)
        self._arm(effect.key)

    def _arm(self, key: str) -> None:
        timer = self._timers[key]

        def ring() -> None:
            if self._timers.get(key) == timer:
                del self._timers[key]
                self.deliver(Woke(key=key))

        self.world.timeline.at(timer[0] - self.clock_ahead, ring)


def together(first: Address, second: Address) -> bool:
    """Whether two machines live in one process: the cluster manager lives in the first front."""
    pair = sorted((first, second))
    return pair == ["cluster", "front/0"]
