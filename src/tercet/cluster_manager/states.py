"""The states of a member as the cluster manager sees it: what is not written cannot happen.

(asked for, or reported) STARTING --READY--> READY --+ READY (repeated)
                             | STOP            |   <-+
                             v                 | STOP
                          STOPPING <-----------+
every state -- GONE --> gone
"""

from collections.abc import Mapping
from enum import StrEnum

from tercet.base.errors import InvariantBroken
from tercet.base.ids import ExecutorId


class MemberState(StrEnum):
    STARTING = "starting"
    """Its agent was asked for it, or reports it, and it cannot serve yet."""
    READY = "ready"
    """It is in the list of members."""
    STOPPING = "stopping"
    """Its agent was asked to end it; it is in no list any more."""
    GONE = "gone"
    """The last state: the manager forgets it."""


class MemberEvent(StrEnum):
    READY = "ready"
    STOP = "stop"
    GONE = "gone"


S, E = MemberState, MemberEvent

MEMBER_STEPS: Mapping[tuple[MemberState, MemberEvent], MemberState] = {
    (S.STARTING, E.READY): S.READY,
    (S.STARTING, E.STOP): S.STOPPING,
    (S.STARTING, E.GONE): S.GONE,
    (S.READY, E.READY): S.READY,
    (S.READY, E.STOP): S.STOPPING,
    (S.READY, E.GONE): S.GONE,
    (S.STOPPING, E.READY): S.STOPPING,
    (S.STOPPING, E.GONE): S.GONE,
}


def next_state(state: MemberState, event: MemberEvent, executor: ExecutorId) -> MemberState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = MEMBER_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"member {executor} is {state}: it cannot take {event!r}")
    return found
