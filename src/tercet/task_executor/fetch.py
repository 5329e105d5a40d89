"""One task's prompt at one lender: what was asked, how it comes, how far it is."""

from dataclasses import dataclass

from tercet.base.ids import Address
from tercet.messages.kv import Reach, Way
from tercet.scheduling.run import TaskRun
from tercet.task_executor.inflow import Inflow
from tercet.transfer.states import FetchEvent, FetchState, next_fetch_state

WAITS = (FetchState.DEFERRED, FetchState.ASKED, FetchState.MOVING)
"""Its task waits for it."""


@dataclass(slots=True)
class Fetch:
    """One task's prompt at one lender."""

    ask: int
    run: TaskRun
    lender: Address
    reach: Reach
    way: Way
    num_blocks: int
    began: int
    heard: int
    """When the lender last said something of it."""
    state: FetchState = FetchState.DEFERRED
    inflow: Inflow | None = None
    memory: str = ""
    """Read in place: whose arena."""
    last: bool = False
    """The lender told of all blocks."""

    def step(self, event: FetchEvent) -> None:
        self.state = next_fetch_state(self.state, event, f"fetch {self.ask} of {self.run.name}")
