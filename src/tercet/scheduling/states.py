"""The states of a task at one executor, as a table: what is not written cannot happen.

          +-----------+  leader computed or gone   +---------+  fetched or not   +----------+
submit -> | FOLLOWING | -------------------------> | WAITING | <---------------- | FETCHING |
          +-----------+                  submit -> +---------+                   +----------+
                |                                   |  |   ^                submit -^   | end
                |                     +-------------+  |   | its last step is done
                |                     |          admit |   | (blocks given back)
                | end             end |                v   |
                |                     |     +---------+   +---------+
                |                     |     | RUNNING |-->| LEAVING |
                |                     |     +---------+   +---------+
                |                     |       | preempt     |
                v                     v   end v         end v
              +-----------------------------------------------+
              |                     ENDED                     |
              +-----------------------------------------------+

state       slot   blocks                       in plans under way
FOLLOWING   no     no                           no
FETCHING    no     its fetch has some reserved  no
WAITING     no     no                           no
RUNNING     yes    yes                          perhaps
LEAVING     no     until its last plan is done  yes
ENDED       no     until its last plan is done  perhaps: what comes back is dropped
"""

from collections.abc import Mapping
from enum import Enum

from tercet.base.errors import InvariantBroken


class RunState(Enum):
    FOLLOWING = "following"
    """Waits until a sibling has computed the prompt that they share."""
    FETCHING = "fetching"
    """Blocks of its prompt are on their way from elsewhere; it is in no queue."""
    WAITING = "waiting"
    """In the queue."""
    RUNNING = "running"
    """Has a slot; every step may compute some of its tokens."""
    LEAVING = "leaving"
    """Preempted; steps under way still write into its blocks."""
    ENDED = "ended"
    """Finished, refused or cancelled."""


NEXT: Mapping[RunState, tuple[RunState, ...]] = {
    RunState.FOLLOWING: (RunState.WAITING, RunState.FETCHING, RunState.ENDED),
    RunState.FETCHING: (RunState.WAITING, RunState.ENDED),
    RunState.WAITING: (RunState.FETCHING, RunState.RUNNING, RunState.ENDED),
    RunState.RUNNING: (RunState.LEAVING, RunState.ENDED),
    RunState.LEAVING: (RunState.WAITING, RunState.ENDED),
    RunState.ENDED: (),
}


def step_to(old: RunState, new: RunState, story: str) -> RunState:
    """Give the new state; a pair that the table lacks is a broken program."""
    if new not in NEXT[old]:
        raise InvariantBroken(f"{story} is {old.value}: it cannot become {new.value}")
    return new


UNADMITTED = (RunState.FOLLOWING, RunState.WAITING)
"""Those that stand in the queue."""
