"""Whether another executor's blocks are of use here, and how they come.

    by reference   where they can be read in place: nothing is moved
    by layer       |===== prefill =====|           what is left behind it: the last layer, or all
                     |= layers, one by one =|--|   that a slow link has not brought yet
    by request     |===== prefill =====|==========|   the whole

Each layer is a move of its own, so a link of high latency and a short prefill are better off with
one. What moves from a peer take is learned from those that it made: of layers only the fastest of a
fetch tells, the others wait for the layer to be computed.
"""

from tercet.base.ids import BLOCK_TOKENS, Address
from tercet.cache.economy import Economy, SourceStanding
from tercet.messages.events import Moved
from tercet.messages.kv import Reach, Way
from tercet.scheduling.run import TaskRun
from tercet.scheduling.scheduler import Scheduler
from tercet.task_executor.config import Capacity
from tercet.task_executor.neighbours import Neighbours
from tercet.task_executor.weighing import prefill_ns
from tercet.transfer.config import TransferConfig


def readable(reach: Reach, capacity: Capacity) -> bool:
    """Say whether its blocks are what this executor would have computed, bit for bit."""
    same = reach.layout is not None and reach.layout == capacity.reach.layout
    return same and reach.fingerprint == capacity.fingerprint


class Ways:
    """Chooses for each pair of peers, by what moves between them took."""

    def __init__(
        self, config: TransferConfig, scheduler: Scheduler, neighbours: Neighbours
    ) -> None:
        self._choice = config.way
        self._scheduler = scheduler
        self._neighbours = neighbours
        self._economy = Economy()

    def to(self, lender: Address, reach: Reach, run: TaskRun) -> Way:
        """Choose how a task's prompt comes from a lender."""
        here = self._neighbours.readable(reach.memory)
        if self._choice == "auto":
            return Way.REFERENCE if here else self._moved(lender, reach, run)
        way = Way(self._choice)
        return Way.REQUEST if way is Way.REFERENCE and not here else way

    def learn(self, lender: Address, fastest: Moved | None) -> None:
        """Take note of the move of a fetch that tells what the link can do, if there was one."""
        if fastest is not None:
            size, duration_ns = fastest.size, fastest.duration_ns
            self._economy.learn(_source(lender), size=size, duration_ns=duration_ns)

    def standing(self) -> tuple[SourceStanding, ...]:
        """Give what was learned, by peer."""
        return self._economy.standing()

    def _moved(self, lender: Address, reach: Reach, run: TaskRun) -> Way:
        source, layout = _source(lender), reach.layout
        if layout is None or not self._economy.knows(source):
            return Way.LAYER
        hit, _ = self._scheduler.cache.peek(run.task.namespace, run.tokens)
        known = len(run.tokens) - 1
        size = (known // BLOCK_TOKENS - hit) * layout.block_bytes
        layer_ns = self._economy.cost_ns(source, size // layout.layers)
        prefill = prefill_ns(
            self._scheduler.pace.cost,
            computed=hit * BLOCK_TOKENS,
            known=known,
            step_ns_max=self._scheduler.config.step_ns_max,
        )
        by_layer = max(layer_ns, layout.layers * layer_ns - prefill)
        return Way.LAYER if by_layer <= self._economy.cost_ns(source, size) else Way.REQUEST


def _source(lender: Address) -> str:
    return f"peer:{lender}"
