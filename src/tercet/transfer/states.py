"""The states of a lease at its lender and of a fetch at its asker, as tables.

lease (lender)                            RETURN, EXPIRE, GONE, RENEWED, REVOKE
    QUEUED ──GRANT──▶ PARTLY ──GRANT_LAST──▶ LENT ────────────────────▶ OVER
       │  └─────────────GRANT_LAST────────────▶┘                          ▲
       └──RETURN (a cancel), EXPIRE, GONE, RENEWED, REVOKE────────────────┘

fetch (asker)
    DEFERRED ──RESERVE──▶ ASKED ──READY──▶ MOVING ──ARRIVE──▶ DONE
     ▲  │                   │ └──LENT──▶ BORROWED ──END──▶ DONE
     │  └──FAIL, END────────┼──FAIL, END──▶ DONE (and LEAVING while moves are under way)
     └──────TAKE_BACK───────┘

Every way out of a lease ends the hold on its blocks; every way out of a fetch lets the task go on
and tells the lender.
"""

from collections.abc import Mapping
from enum import StrEnum

from tercet.base.errors import InvariantBroken


class LeaseState(StrEnum):
    QUEUED = "queued"
    """The blocks are still to be computed; nothing is lent."""
    PARTLY = "partly"
    """Some blocks are lent, the others follow (by layer)."""
    LENT = "lent"
    """All of them are lent."""
    OVER = "over"
    """Nothing is held for the asker any more."""


class LeaseEvent(StrEnum):
    GRANT = "grant"
    """Some of the blocks are there, or will be in a planned step."""
    GRANT_LAST = "grant_last"
    """All of them."""
    RETURN = "return"
    """The asker has read them, or does not want them: acknowledgement and cancel are one."""
    EXPIRE = "expire"
    """The asker said nothing for the length of a lease."""
    RENEWED = "renewed"
    """The asker's process is another one now: the former self's leases are over."""
    GONE = "gone"
    """The connection to the asker ended and did not come back in time."""
    REVOKE = "revoke"
    """The prefill lost its blocks to others before it was whole; the asker is told."""


class FetchState(StrEnum):
    DEFERRED = "deferred"
    """There is no room for the blocks yet; nobody was asked."""
    ASKED = "asked"
    """Room is reserved; the source was asked."""
    MOVING = "moving"
    """Blocks are on their way into the reserved ones."""
    BORROWED = "borrowed"
    """The task reads the blocks where they lie."""
    LEAVING = "leaving"
    """It is over, but moves under way still write into the reserved blocks."""
    DONE = "done"


class FetchEvent(StrEnum):
    RESERVE = "reserve"
    TAKE_BACK = "take_back"
    """A task that runs needs the reserved blocks: ask again when there is room."""
    READY = "ready"
    """The source lends blocks to be copied."""
    LENT = "lent"
    """The source lends blocks to be read in place."""
    ARRIVE = "arrive"
    """The last block that was wanted is here; of one that was not asked for: by another fetch."""
    FAIL = "fail"
    """Refused, silent, gone, corrupt, stale or late: the task computes what is missing itself."""
    END = "end"
    """The task ended, or needs the blocks no more."""
    LANDED = "landed"
    """The last move under way has ended."""


LS, LE = LeaseState, LeaseEvent

LEASE_STEPS: Mapping[tuple[LeaseState, LeaseEvent], LeaseState] = {
    (LS.QUEUED, LE.GRANT): LS.PARTLY,
    (LS.QUEUED, LE.GRANT_LAST): LS.LENT,
    (LS.QUEUED, LE.RETURN): LS.OVER,
    (LS.QUEUED, LE.EXPIRE): LS.OVER,
    (LS.QUEUED, LE.RENEWED): LS.OVER,
    (LS.QUEUED, LE.GONE): LS.OVER,
    (LS.QUEUED, LE.REVOKE): LS.OVER,
    (LS.PARTLY, LE.GRANT): LS.PARTLY,
    (LS.PARTLY, LE.GRANT_LAST): LS.LENT,
    (LS.PARTLY, LE.RETURN): LS.OVER,
    (LS.PARTLY, LE.EXPIRE): LS.OVER,
    (LS.PARTLY, LE.RENEWED): LS.OVER,
    (LS.PARTLY, LE.GONE): LS.OVER,
    (LS.PARTLY, LE.REVOKE): LS.OVER,
    (LS.LENT, LE.RETURN): LS.OVER,
    (LS.LENT, LE.EXPIRE): LS.OVER,
    (LS.LENT, LE.RENEWED): LS.OVER,
    (LS.LENT, LE.GONE): LS.OVER,
    (LS.LENT, LE.REVOKE): LS.OVER,
}

FS, FE = FetchState, FetchEvent

FETCH_STEPS: Mapping[tuple[FetchState, FetchEvent], FetchState] = {
    (FS.DEFERRED, FE.RESERVE): FS.ASKED,
    (FS.DEFERRED, FE.FAIL): FS.DONE,
    (FS.DEFERRED, FE.ARRIVE): FS.DONE,
    (FS.DEFERRED, FE.END): FS.DONE,
    (FS.ASKED, FE.READY): FS.MOVING,
    (FS.ASKED, FE.LENT): FS.BORROWED,
    (FS.ASKED, FE.TAKE_BACK): FS.DEFERRED,
    (FS.ASKED, FE.FAIL): FS.DONE,
    (FS.ASKED, FE.END): FS.DONE,
    (FS.MOVING, FE.READY): FS.MOVING,
    (FS.MOVING, FE.ARRIVE): FS.DONE,
    (FS.MOVING, FE.FAIL): FS.LEAVING,
    (FS.MOVING, FE.END): FS.LEAVING,
    (FS.BORROWED, FE.FAIL): FS.DONE,
    (FS.BORROWED, FE.END): FS.DONE,
    (FS.LEAVING, FE.LANDED): FS.DONE,
}


def next_lease_state(state: LeaseState, event: LeaseEvent, story: str) -> LeaseState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = LEASE_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"{story} is {state}: it cannot {event}")
    return found


def next_fetch_state(state: FetchState, event: FetchEvent, story: str) -> FetchState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = FETCH_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"{story} is {state}: it cannot {event}")
    return found
