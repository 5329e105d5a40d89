"""What a node agent remembers of the executors of its host."""

from dataclasses import dataclass, field

from tercet.base.ids import ExecutorId
from tercet.messages.wire import ExecutorReady
from tercet.node_agent.progress import ProgressWatch
from tercet.node_agent.states import ExecutorState

NUM_GONE_MAX = 256


@dataclass(slots=True)
class Resident:
    """An executor of this host, until its process is gone."""

    executor: ExecutorId
    state: ExecutorState
    watch: ProgressWatch
    ready: ExecutorReady | None = None
    """What it said when it could serve."""
    reason: str = ""
    """Why it was killed, if it was."""
    looked: int = 0
    waited_ns: int = 0
    """How long it was waited for while it was not ready."""


@dataclass(slots=True)
class Gone:
    """The last executors that are gone, so that late words do not raise them."""

    executors: dict[ExecutorId, str] = field(default_factory=dict)

    def add(self, executor: ExecutorId, reason: str) -> None:
        self.executors[executor] = reason
        while len(self.executors) > NUM_GONE_MAX:
            del self.executors[next(iter(self.executors))]
