"""The engine's thread: runs plans in order, writes the progress page around each, posts results."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tercet.engine.blas import BlasThreads
from tercet.engine.engine import Engine
from tercet.engine.progress import ProgressWriter
from tercet.engine.threads import ThreadChoice
from tercet.messages.effects import RunStep
from tercet.messages.events import StepDone
from tercet.runtime.supervise import OrStop


@dataclass(frozen=True)
class Threads:
    """How many threads products get, step by step."""

    blas: BlasThreads
    choice: ThreadChoice


class EngineThread:
    """Takes steps from the loop and answers each with `StepDone` in the loop, in order."""

    def __init__(
        self,
        engine: Engine,
        progress: ProgressWriter,
        *,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[StepDone], None],
        threads: Threads | None,
    ) -> None:
        self._engine = engine
        self._threads = threads
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
                started = time.monotonic_ns()
                self._progress.step_started(started, step.predicted_ns)
                if self._threads is not None:
                    self._threads.blas.use(self._threads.choice.threads)
                result = self._engine.run(step.plan)
                taken = time.monotonic_ns() - started
                if self._threads is not None and not result.drafted:  # nobody predicted their rows
                    self._threads.choice.learn(taken_ns=taken, predicted_ns=step.predicted_ns)
                self._progress.step_done()
            done = StepDone(result=result, started=started)
            self._loop.call_soon_threadsafe(self._deliver, done)
