"""What the agent's process has of each executor: its process, its progress page, its arena."""

import contextlib
import mmap
import os
import signal

from tercet.base.ids import ExecutorId
from tercet.engine.progress import PROGRESS_BYTES, Progress, ProgressReader
from tercet.messages.events import ProgressSeen
from tercet.runtime.control import Channel


class Resident:
    """Descriptors of one executor; `parts` is what the supervisor holds copies of."""

    def __init__(self, executor: ExecutorId, progress: int) -> None:
        self.executor = executor
        self.pid = 0
        self.birth: Channel | None = None
        """Until the executor has its arena."""
        self.parts: dict[str, int] = {"progress": progress}
        self.seen: Progress | None = None
        self.dead = False
        self.how = ""
        """The supervisor's word on how the process ended, if it came."""
        self.why = ""
        """A sentence on why it could not start, its own or the agent's."""
        self._page = mmap.mmap(progress, PROGRESS_BYTES, prot=mmap.PROT_READ)
        self._reader = ProgressReader(memoryview(self._page))

    @property
    def reason(self) -> str:
        """Why it is gone, for whoever asks for it."""
        return self.why or f"its process ended: {self.how or 'unseen'}"

    @property
    def pidfd(self) -> int | None:
        return self.parts.get("process")

    def sample(self) -> Progress | None:
        """Give the newest whole sample of the page."""
        self.seen = self._reader.read() or self.seen
        return self.seen

    def progress(self) -> ProgressSeen | None:
        """Give the sample as the agent's machine is told of it; None if there is nothing to see."""
        seen = None if self.dead else self.sample()
        if seen is None:
            return None
        return ProgressSeen(
            executor=self.executor,
            steps=seen.steps,
            step_started=seen.step_started,
            step_predicted_ns=seen.step_predicted_ns,
            has_work=seen.has_work,
            loop_beat=seen.loop_beat,
        )

    def kill(self) -> None:
        """End the process, whatever it does; harmless if it has ended."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close_birth(self) -> None:
        if self.birth is not None:
            self.birth.close()
            self.birth = None

    def close(self) -> None:
        """Give the descriptors back; the arena's memory goes with its last one."""
        self.close_birth()
        for descriptor in self.parts.values():
            os.close(descriptor)
        self.parts.clear()


def make_progress_page() -> int:
    """Give the descriptor of a new page of zeros."""
    descriptor = os.memfd_create("tercet-progress", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    return descriptor
