"""The engine's thread: runs plans in order, writes the progress page around each, posts results."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable

from tercet.engine.engine import Engine
from tercet.engine.progress import ProgressWriter
from tercet.messages.effects import RunStep
from tercet.messages.events import StepDone
from tercet.runtime.supervise import OrStop


class EngineThread:
    """Takes steps from the loop and answers each with `StepDone` in the loop, in order."""

    def __init__(
        self,
        engine: Engine,
        progress: ProgressWriter,
        *,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[StepDone], None],
    ) -> None:
        self._engine = engine
        self._progress = progress
        self._loop = loop
        self._deliver = deliver
        self._steps: queue.SimpleQueue[RunStep] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run_step(self, step: RunStep) -> None:
        """Run it after those that wait (at most one does: the machine plans one ahead)."""
        self._steps.put(step)

    def _run(self) -> None:
        while True:
            step = self._steps.get()
            with OrStop(lambda number=step.plan.step: f"step {number} broke down"):  # type: ignore[misc]
                self._progress.step_started(time.monotonic_ns(), step.predicted_ns)
                result = self._engine.run(step.plan)
                self._progress.step_done()
            self._loop.call_soon_threadsafe(self._deliver, StepDone(result=result))
