"""An executor's engine in virtual time: the real engine on the `cost` device, one step at a time.

RunStep ──▶ queue ──▶ running ──(its duration later)──▶ StepDone
                         └── hung: it never ends      └── poison: the process dies here
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from tercet.base.ids import ExecutorId, JobId, job_of
from tercet.base.model import ModelShape
from tercet.devices.cost.config import CostConfig
from tercet.devices.cost.device import CostDevice
from tercet.devices.cost.durations import LinearDuration
from tercet.engine.engine import Engine, Started
from tercet.messages.effects import RunStep
from tercet.messages.events import ProgressSeen, StepDone
from tercet.messages.plan import StepCost, StepPlan, StepResult
from tercet.models.families.build import build
from tercet.sim.arenas import Range
from tercet.sim.checkers.blocks import BlockChecker
from tercet.sim.checkers.contents import ContentChecker, Reads
from tercet.sim.counted_engine import Counted, CountedEngine
from tercet.sim.layer_clock import LayerClock
from tercet.sim.node import Node
from tercet.sim.scenario import ClusterSpec

FINGERPRINT = "cost"


class EngineHost:
    """Runs the plans of one simulated executor and shows its progress to the agent."""

    def __init__(
        self,
        executor: ExecutorId,
        *,
        spec: ClusterSpec,
        shape: ModelShape,
        cost: StepCost,
        memory: Range,
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
            memory=memory,
            max_slots=spec.slots,
            clock=lambda: 0,
        )
        self._counted = CountedEngine(
            duration, memory=memory, max_slots=spec.slots, context_max=shape.context_max
        )
        """Instead of it where nobody looks."""
        self.memory = memory
        self.clock: LayerClock | None = None
        """Set by the host, once there is a process."""
        self.contents = ContentChecker(
            f"executor/{executor}", FINGERPRINT, memory, self._engine.slots
        )
        self._looks = spec.check_contents
        self._poison = poison
        self._poisoned: dict[int, None] = {}
        self._queue: deque[RunStep] = deque()
        self._running: RunStep | None = None
        self._started = 0
        self._steps = 0

    def run(self, node: Node, effect: RunStep) -> None:
        """Carry out a `RunStep` after those asked for before."""
        if self._looks:
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
        timeline = node.world.timeline
        slow = self.slow_factor if timeline.now < self.slow_until else 1.0
        started: Started | Counted
        reads = None
        if self._looks:
            started = self._engine.start(effect.plan)
            duration = started.outputs.duration_ns if started.outputs is not None else 0
            reads = self._look(started, int(duration * slow))
        else:
            started = self._counted.start(effect.plan)
            duration = started.duration_ns

        def end() -> None:
            if not node.alive or self.stuck:
                return
            if node.frozen:
                timeline.after(node.thaws_in, end)
                return
            result = self._finish(started, reads)
            self._running = None
            self._steps += 1
            self.num_tokens += len(result.tokens) // 4
            if self._queue:
                self._begin(node)
            node.deliver(StepDone(result=result))

        timeline.after(int(duration * slow), end)

    def _look(self, started: Started, duration: int) -> Reads:
        """Check what the step reads, and let it write, layer by layer, what it computes."""
        contents, plan = self.contents, started.plan
        contents.opened(plan)
        reads = contents.reads(started.seating.slots)
        contents.compare(plan.step, reads)
        if self.clock is not None:
            self.clock.begin(plan.step, duration, *contents.computes(started.seating))
        return reads

    def _finish(self, started: Started | Counted, reads: Reads | None) -> StepResult:
        if isinstance(started, Counted):
            return self._counted.finish(started)
        if self.clock is not None and reads is not None:
            self.clock.end()
        result = self._engine.finish(started)
        if reads is not None:
            stale = np.frombuffer(started.plan.slots, "<i4")[np.frombuffer(result.stale, "<i4")]
            self.contents.compare(started.plan.step, reads.foreign, without=stale.tolist())
            blocks, tags = self.contents.settled(started.seating)
            self.memory.own.blocks[blocks] = tags
        return result

    def _swallows_poison(self, plan: StepPlan) -> bool:
        for slot in plan.closes:
            self._poisoned.pop(slot, None)
        for opening in plan.opens:
            if job_of(opening.task.id) in self._poison:
                self._poisoned[opening.slot] = None
        return any(slot in self._poisoned for slot in np.frombuffer(plan.slots, "<i4").tolist())
