"""The real driver's core: events in, effects out, for each machine of this process.

timer, socket, engine thread, client --event--> Host.deliver --> machine.on(event, now)
                                                    |                    |
                      recorder <--(now, event)------+                 effects, in order
                                                    +---Send--> peer's socket, or a local Host
                                                    +---Wake--> loop.call_later
                                                    +---RunStep, Emit, Spawn...--> Ports
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, assert_never

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch
from tercet.base.machine import Machine
from tercet.messages.effects import (
    Effect,
    Emit,
    Fact,
    Forget,
    Kill,
    Move,
    RunStep,
    Send,
    Spawn,
    Sum,
    Unmap,
    Wake,
)
from tercet.messages.events import Event, PeerGone, PeerJoined, Received, Woke
from tercet.messages.images import OpenImage, SealImage
from tercet.messages.wire import Message
from tercet.runtime.peers import Peers
from tercet.runtime.recording import Recorder
from tercet.runtime.supervise import OrStop

IDLE_CHECK_S = 1.0

EventT = TypeVar("EventT", bound=Event, contravariant=True)
Common = Received | PeerJoined | PeerGone | Woke


def _absent(effect: object) -> None:
    must(False, f"this process carries out no {type(effect).__name__}")


@dataclass(frozen=True)
class Ports:
    """What a machine's effects reach besides sockets and timers; absent ones must not be asked."""

    run_step: Callable[[RunStep], None] = _absent
    emit: Callable[[Emit], None] = _absent
    spawn: Callable[[Spawn], None] = _absent
    kill: Callable[[Kill], None] = _absent
    forget: Callable[[Forget], None] = _absent
    move: Callable[[Move], None] = _absent
    sum: Callable[[Sum], None] = _absent
    unmap: Callable[[Unmap], None] = _absent
    open_image: Callable[[OpenImage], None] = _absent
    seal_image: Callable[[SealImage], None] = _absent
    fact: Callable[[Fact], None] = lambda _: None


@dataclass
class Process:
    """What the machines of one process share: a clock, local delivery, one queue of events."""

    clock: Callable[[], int] = time.monotonic_ns
    hosts: "dict[Address, Host[Common]]" = field(default_factory=dict)
    queue: "deque[Callable[[], None]]" = field(default_factory=deque)
    busy: bool = False

    def enqueue(self, turn: Callable[[], None]) -> None:
        """Run a turn now, or after those that wait; a machine is never entered twice at once."""
        self.queue.append(turn)
        if self.busy:
            return
        self.busy = True
        try:
            while self.queue:
                self.queue.popleft()()
        finally:
            self.busy = False

    def introduce(self) -> None:
        """Tell the machines of this process of each other, as connections would."""
        for host in list(self.hosts.values()):
            for other in list(self.hosts.values()):
                if other is not host:
                    host.deliver(PeerJoined(peer=other.address, epoch=other.epoch))


class Host(Generic[EventT]):
    """One machine under the real driver."""

    def __init__(
        self,
        process: Process,
        address: Address,
        machine: Machine[EventT, Effect],
        *,
        epoch: Epoch,
        ports: Ports,
        recorder: Recorder | None = None,
    ) -> None:
        self.address = address
        self.epoch = epoch
        self.machine = machine
        self.peers: Peers | None = None
        self._process = process
        self._ports = ports
        self._recorder = recorder
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._turns = 0
        self._loop = asyncio.get_running_loop()

    def deliver(self, event: EventT) -> None:
        """Give the machine an event and carry out its effects, before this returns unless the
        process is within another turn.
        """
        self._process.enqueue(lambda: self._turn(event))

    def check_at_idle(self) -> None:
        """Ask the machine whenever a second passed without an event whether its invariants hold."""
        self._loop.call_later(IDLE_CHECK_S, self._idle, self._turns)

    def close(self) -> None:
        """Forget all timers and finish the recording."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._recorder is not None:
            self._recorder.close()

    def _turn(self, event: EventT) -> None:
        with OrStop(lambda: f"{self.address} broke down over {_shown(event)}"):
            now = self._process.clock()
            self._turns += 1
            if self._recorder is not None:
                self._recorder.event(now, event)
            effects = self.machine.on(event, now)
            if self._recorder is not None:
                self._recorder.effects(effects)
            for effect in effects:
                self._carry_out(effect, now)

    def _carry_out(  # noqa: C901, PLR0912  one case an effect
        self, effect: Effect, now: int
    ) -> None:
        match effect:
            case Send(to=to, message=message):
                self._send(to, message)
            case Wake():
                self._wake(effect, now)
            case Emit():
                self._ports.emit(effect)
            case RunStep():
                self._ports.run_step(effect)
            case Fact():
                self._ports.fact(effect)
            case Spawn():
                self._ports.spawn(effect)
            case Kill():
                self._ports.kill(effect)
            case Forget():
                self._ports.forget(effect)
            case Move():
                self._ports.move(effect)
            case Sum():
                self._ports.sum(effect)
            case Unmap():
                self._ports.unmap(effect)
            case OpenImage():
                self._ports.open_image(effect)
            case SealImage():
                self._ports.seal_image(effect)
            case _:
                assert_never(effect)

    def _send(self, to: Address, message: Message) -> None:
        local = self._process.hosts.get(to)
        if local is not None:
            local.deliver(Received(sender=self.address, epoch=self.epoch, message=message))
        elif self.peers is not None:
            self.peers.send(to, message)

    def _wake(self, effect: Wake, now: int) -> None:
        former = self._timers.pop(effect.key, None)
        if former is not None:
            former.cancel()
        self._arm(effect.key, effect.at, now)

    def _arm(self, key: str, at: int, now: int) -> None:
        # uvloop rounds to milliseconds, down as well; machines rely on being woken no earlier.
        delay_ms = -(-max(0, at - now) // 1_000_000)
        self._timers[key] = self._loop.call_later(delay_ms / 1000, self._woke, key, at)

    def _woke(self, key: str, at: int) -> None:
        del self._timers[key]
        now = self._process.clock()
        if now < at:
            self._arm(key, at, now)
            return
        woke: Callable[[Woke], None] = self.deliver  # type: ignore[assignment]
        woke(Woke(key=key))

    def _idle(self, turns_before: int) -> None:
        if self._turns == turns_before:
            with OrStop(lambda: f"{self.address} is not sound at idle"):
                self.machine.check()
        self._loop.call_later(IDLE_CHECK_S, self._idle, self._turns)


def _shown(event: object) -> str:
    """Name an event without what it carries: prompts stay out of logs."""
    inner = getattr(event, "message", None)
    name = type(event).__name__
    return name if inner is None else f"{name}({type(inner).__name__})"
