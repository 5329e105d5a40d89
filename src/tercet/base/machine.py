"""The machine contract: events and a time go in, effects come out.

A machine does no I/O, reads no clock, draws no chance of its own and never blocks. One driver
(`runtime`) gives it real time and real sockets, another (`sim`) virtual ones; the object is the
same. Events and effects are frozen `msgspec.Struct`s in closed unions (`messages.events`,
`messages.effects`), so a recording of `(now, event)` replays to the same effects.
"""

from typing import Protocol, TypeVar

Event = TypeVar("Event", contravariant=True)
Effect = TypeVar("Effect")


class Machine(Protocol[Event, Effect]):
    """A pure state machine; `now` is integer nanoseconds from any fixed origin."""

    def on(self, event: Event, now: int) -> list[Effect]:
        """Take one event and answer with the effects; total, bounded work, no I/O."""
        ...

    def check(self) -> None:
        """Raise `InvariantBroken` with the story when an invariant does not hold."""
        ...
