"""An executor's engine in virtual time: the real engine on the `cost` device, one step at a time.

RunStep ──▶ queue ──▶ running ──(its duration later)──▶ StepDone
                         └── hung: it never ends      └── poison: the process dies here
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from tercet.base.ids import ExecutorId, JobId, job_of
from tercet.base.model import ModelShape
from tercet.devices.contract import I64, U64
from tercet.devices.cost.config import CostConfig
from tercet.devices.cost.device import CostDevice
from tercet.devices.cost.durations import LinearDuration
from tercet.engine.engine import Engine
from tercet.engine.memory import U32
from tercet.messages.effects import RunStep
from tercet.messages.events import ProgressSeen, StepDone
from tercet.messages.plan import StepCost, StepPlan
from tercet.models.families.build import build
from tercet.sim.checkers.blocks import BlockChecker
from tercet.sim.node import Node
from tercet.sim.scenario import ClusterSpec


class VirtualMemory:
    """KV memory that holds nothing but generations."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self.lives = np.zeros(num_blocks, np.uint32)
        self._clock = np.zeros(1, np.uint64)

    @property
    def num_ids(self) -> int:
        return self._num_blocks

    @property
    def own_blocks(self) -> range:
        return range(self._num_blocks)

    def life_places(self, block_ids: I64) -> I64:
        return block_ids

    def renew(self, block_ids: I64, lives: U32) -> None:
        self.lives[block_ids] = lives

    def clock(self) -> U64:
        return self._clock


class EngineHost:
    """Runs the plans of one simulated executor and shows its progress to the agent."""

    def __init__(
        self,
        executor: ExecutorId,
        *,
        spec: ClusterSpec,
        shape: ModelShape,
        cost: StepCost,
        poison: "dict[JobId, None]",
    ) -> None:
        duration = LinearDuration(
            base_ns=cost.base_ns,
            per_row_ns=cost.per_row_ns,
            per_logit_ns=cost.per_logit_ns,
            per_pair_ns=cost.per_pair_ns,
        )
        self.executor = executor
        self.slow_factor = 1.0
        self.slow_until = 0
        self.stuck = False
        """The next step to end never does (a loop below the device seam)."""
        self.on_poison: Callable[[], None] = lambda: None
        self.checker = BlockChecker(f"executor/{executor}")
        self.num_tokens = 0
        self._engine = Engine(
            CostDevice(config=CostConfig(repeat=spec.repeat), duration=duration).compile(
                build(shape), {}
            ),
            shape=shape,
            memory=VirtualMemory(spec.blocks),
            max_slots=spec.slots,
            clock=lambda: 0,
        )
        self._poison = poison
        self._poisoned: dict[int, None] = {}
        self._queue: deque[RunStep] = deque()
        self._running: RunStep | None = None
        self._started = 0
        self._steps = 0

    def run(self, node: Node, effect: RunStep) -> None:
        """Carry out a `RunStep` after those asked for before."""
        self.checker.look(effect.plan)
        self._queue.append(effect)
        if self._running is None:
            self._begin(node)

    def progress(self, node: Node, *, frozen_since: int | None) -> ProgressSeen:
        """What the agent reads from the progress page now."""
        running = self._running
        return ProgressSeen(
            executor=self.executor,
            steps=self._steps,
            step_started=self._started if running else 0,
            step_predicted_ns=running.predicted_ns if running else 0,
            has_work=running is not None or bool(self._queue),
            loop_beat=node.now if frozen_since is None else frozen_since,
        )

    def _begin(self, node: Node) -> None:
        effect = self._running = self._queue.popleft()
        self._started = node.now
        if self._swallows_poison(effect.plan):
            self.on_poison()
            return
        result = self._engine.run(effect.plan)
        timeline = node.world.timeline
        slow = self.slow_factor if timeline.now < self.slow_until else 1.0

        def end() -> None:
            if not node.alive or self.stuck:
                return
            if node.frozen:
                timeline.after(node.thaws_in, end)
                return
            self._running = None
            self._steps += 1
            self.num_tokens += len(result.tokens) // 4
            if self._queue:
                self._begin(node)
            node.deliver(StepDone(result=result))

        timeline.after(int(result.duration_ns * slow), end)

    def _swallows_poison(self, plan: StepPlan) -> bool:
        for slot in plan.closes:
            self._poisoned.pop(slot, None)
        for opening in plan.opens:
            if job_of(opening.task.id) in self._poison:
                self._poisoned[opening.slot] = None
        return any(slot in self._poisoned for slot in np.frombuffer(plan.slots, "<i4").tolist())
