"""The states of an executor on its host, as a table: what is not written cannot happen.

START --> SPAWNING --SPAWNED--> STARTING --READY--> READY --+ READY (repeated)
             | STOP, STUCK         | STOP, STUCK     |    <-+
             v                     v                 | STOP, STUCK
          DOOMED ----SPAWNED----> KILLED <-----------+
a new agent's ADOPTED, or READY of an executor that it does not know yet --> STARTING
SPAWNING --READY--> READY (its word overtook the driver's)
every state -- EXITED --> gone; SPAWNING, DOOMED -- SPAWN_FAILED --> gone
"""

from collections.abc import Mapping
from enum import StrEnum

from tercet.base.errors import InvariantBroken
from tercet.base.ids import ExecutorId


class ExecutorState(StrEnum):
    SPAWNING = "spawning"
    """The driver was asked for a process."""
    STARTING = "starting"
    """The process lives and has not said that it can serve."""
    READY = "ready"
    DOOMED = "doomed"
    """To be killed as soon as there is a process."""
    KILLED = "killed"
    """SIGKILL was asked for; its exit was not seen yet."""
    GONE = "gone"
    """The last state: the agent forgets it."""


class ExecutorEvent(StrEnum):
    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn failed"
    ADOPTED = "adopted"
    READY = "ready"
    STOP = "stop"
    """The cluster manager wants it gone."""
    STUCK = "stuck"
    """It makes no progress, or did not become ready in time."""
    EXITED = "exited"


S, E = ExecutorState, ExecutorEvent

EXECUTOR_STEPS: Mapping[tuple[ExecutorState, ExecutorEvent], ExecutorState] = {
    (S.SPAWNING, E.SPAWNED): S.STARTING,
    (S.SPAWNING, E.SPAWN_FAILED): S.GONE,
    (S.SPAWNING, E.READY): S.READY,  # its word overtook the driver's
    (S.SPAWNING, E.STOP): S.DOOMED,
    (S.SPAWNING, E.STUCK): S.DOOMED,
    (S.SPAWNING, E.EXITED): S.GONE,
    (S.STARTING, E.SPAWNED): S.STARTING,
    (S.STARTING, E.ADOPTED): S.STARTING,
    (S.STARTING, E.READY): S.READY,
    (S.STARTING, E.STOP): S.KILLED,
    (S.STARTING, E.STUCK): S.KILLED,
    (S.STARTING, E.EXITED): S.GONE,
    (S.READY, E.SPAWNED): S.READY,
    (S.READY, E.ADOPTED): S.READY,
    (S.READY, E.READY): S.READY,
    (S.READY, E.STOP): S.KILLED,
    (S.READY, E.STUCK): S.KILLED,
    (S.READY, E.EXITED): S.GONE,
    (S.DOOMED, E.SPAWNED): S.KILLED,
    (S.DOOMED, E.SPAWN_FAILED): S.GONE,
    (S.DOOMED, E.READY): S.KILLED,
    (S.DOOMED, E.STOP): S.DOOMED,
    (S.DOOMED, E.EXITED): S.GONE,
    (S.KILLED, E.SPAWNED): S.KILLED,
    (S.KILLED, E.ADOPTED): S.KILLED,
    (S.KILLED, E.READY): S.KILLED,
    (S.KILLED, E.STOP): S.KILLED,
    (S.KILLED, E.EXITED): S.GONE,
}


def next_state(state: ExecutorState, event: ExecutorEvent, executor: ExecutorId) -> ExecutorState:
    """Give the state after the event; a pair that the table lacks is a broken program."""
    found = EXECUTOR_STEPS.get((state, event))
    if found is None:
        raise InvariantBroken(f"executor {executor} is {state}: it cannot take {event!r}")
    return found
