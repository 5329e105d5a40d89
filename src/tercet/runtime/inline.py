"""A driver without a loop, threads or sockets: the machines of a process that serves itself.

    deliver --event--> machine.on(event, now)
                            |   effects, in order
      +---Send--> another machine of this process (peers elsewhere: dropped)
      +---Wake--> a table of times
      +---RunStep--> a queue; `turn` runs the oldest and delivers its StepDone
      +---Emit--> the listener

`turn` does one thing and returns, so whoever calls it sees every piece before the next step begins.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, assert_never

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch
from tercet.base.machine import Machine
from tercet.jobs.job import TaskOutput
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
from tercet.messages.events import Event, PeerJoined, Received, StepDone, Woke
from tercet.messages.images import OpenImage, SealImage
from tercet.messages.plan import StepPlan, StepResult

EPOCH = Epoch(1)
"""Of every machine: none of them has a former self."""
NS = 1e9

EventT = TypeVar("EventT", bound=Event, contravariant=True)


class Recording(Protocol):
    """What a machine's recorder is told (`recording.Recorder`)."""

    def event(self, now: int, event: Event) -> None:
        """The machine is about to take the event."""
        ...

    def effects(self, effects: list[Effect]) -> None:
        """It answered with these."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


@dataclass(frozen=True, slots=True)
class _Seat:
    """A machine under the driver."""

    machine: Machine[Event, Effect]
    recording: Recording | None


class Inline:
    """Machines by address; `turn` until it gives False."""

    def __init__(
        self,
        run: Callable[[StepPlan], StepResult],
        *,
        engine_of: Address,
        emit: Callable[[TaskOutput], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._run = run
        self._engine_of = engine_of
        self._emit = emit
        self._clock = clock
        self._seats: dict[Address, _Seat] = {}
        self._steps: deque[StepPlan] = deque()
        self._wakes: dict[tuple[Address, str], int] = {}
        self._turns: deque[tuple[Address, Event]] = deque()
        self._busy = False
        self.broken = False
        """A step or a machine's turn did not come to its end (an error, Ctrl-C): nothing that the
        machines know can be trusted any more, and this driver gives them no further event."""

    def add(
        self,
        address: Address,
        machine: Machine[EventT, Effect],
        *,
        recording: Recording | None = None,
    ) -> None:
        """Put a machine under this driver and tell the others of it, and it of them."""
        others = list(self._seats)
        # Only events of its kind come to its address.
        self._seats[address] = _Seat(machine, recording)  # type: ignore[arg-type]
        for other in others:
            self.deliver(other, PeerJoined(peer=address, epoch=EPOCH))
            self.deliver(address, PeerJoined(peer=other, epoch=EPOCH))

    def deliver(self, address: Address, event: Event) -> None:
        """Give a machine an event and carry out its effects, before this returns unless a machine
        is being entered: none is entered twice at once.
        """
        self._turns.append((address, event))
        if self._busy or self.broken:
            return
        self._busy = self.broken = True
        while self._turns:
            self._enter(*self._turns.popleft())
        self._busy = self.broken = False

    def turn(self) -> bool:
        """Run one step, or else wait for the next timer; False if there is neither."""
        if self.broken:
            return False
        self._wake_due()
        if self._steps:
            self.broken = True
            result = self._run(self._steps.popleft())
            self.broken = False
            self.deliver(self._engine_of, StepDone(result=result))
            return True
        if not self._wakes:
            return False
        time.sleep(max(0, min(self._wakes.values()) - self._clock()) / NS)
        return True

    def check(self) -> None:
        """Raise `InvariantBroken` unless every machine is sound."""
        for seat in self._seats.values():
            seat.machine.check()

    def close(self) -> None:
        """Finish the recordings."""
        for seat in self._seats.values():
            if seat.recording is not None:
                seat.recording.close()

    def _wake_due(self) -> None:
        now = self._clock()
        for (address, key), at in list(self._wakes.items()):
            if at <= now:
                del self._wakes[address, key]
                self.deliver(address, Woke(key=key))

    def _enter(self, address: Address, event: Event) -> None:
        seat, now = self._seats[address], self._clock()
        if seat.recording is not None:
            seat.recording.event(now, event)
        effects = seat.machine.on(event, now)
        if seat.recording is not None:
            seat.recording.effects(effects)
        for effect in effects:
            self._carry_out(address, effect)

    def _carry_out(self, address: Address, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=message):
                if to in self._seats:
                    event = Received(sender=address, epoch=EPOCH, message=message)
                    self.deliver(to, event)
            case RunStep(plan=plan):
                self._steps.append(plan)
            case Emit(output=output):
                self._emit(output)
            case Wake(at=at, key=key):
                self._wakes[address, key] = at
            case Fact():
                pass
            case Spawn() | Kill() | Forget() | Move() | Sum() | Unmap() | OpenImage() | SealImage():
                must(False, f"this process carries out no {type(effect).__name__}")
            case _:
                assert_never(effect)
