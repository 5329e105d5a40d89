"""Work in threads beside the event loop, in lanes: what one of them waits for holds up no other.

lane "host b"   | move | move |  <- move <- move       at most `width` at a time, the rest in line
lane "host c"   | move |                               a line is left when its deadline passes
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tercet.runtime.supervise import OrStop

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Work(Generic[Result]):
    run: Callable[[], Result]
    late: Callable[[], Result]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Lane(Generic[Result]):
    num_running: int = 0
    waiting: deque[_Work[Result]] = field(default_factory=deque)


class Lanes(Generic[Result]):
    """Used in the loop alone; results are delivered there."""

    def __init__(
        self,
        threads: int,
        deliver: Callable[[Result], None],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._deliver = deliver
        self._loop = loop
        self._lanes: dict[str, _Lane[Result]] = {}

    def submit(
        self,
        lane: str,
        run: Callable[[], Result],
        *,
        width: int,
        late: Callable[[], Result],
        deadline: int = 0,
    ) -> None:
        """Run it in its turn, unless the deadline (`time.monotonic_ns`; 0: none) passes before:
        then `late` is its result.
        """
        work = _Work(run, late)
        line = self._lanes.setdefault(lane, _Lane())
        if line.num_running < width:
            self._start(lane, line, work)
            return
        line.waiting.append(work)
        if deadline:
            left = max(0.0, (deadline - time.monotonic_ns()) / 1e9)
            work.timer = self._loop.call_later(left, self._expire, line, work)

    def _start(self, lane: str, line: _Lane[Result], work: _Work[Result]) -> None:
        line.num_running += 1
        if work.timer is not None:
            work.timer.cancel()
        self._pool.submit(self._run, lane, line, work)

    def _run(self, lane: str, line: _Lane[Result], work: _Work[Result]) -> None:
        with OrStop(lambda: "a move broke down"):
            result = work.run()
        self._loop.call_soon_threadsafe(self._ended, lane, line, result)

    def _ended(self, lane: str, line: _Lane[Result], result: Result) -> None:
        line.num_running -= 1
        if line.waiting:
            self._start(lane, line, line.waiting.popleft())
        elif not line.num_running:
            del self._lanes[lane]
        self._deliver(result)

    def _expire(self, line: _Lane[Result], work: _Work[Result]) -> None:
        line.waiting.remove(work)
        self._deliver(work.late())
