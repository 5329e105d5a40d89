"""One of the supervisor's processes, and whether it still turns."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

from tercet.runtime.control import Channel

BEAT_S = 1.0
"""How often a process that runs an event loop says that it turns."""
SILENT_LOOKS_MAX = 15
"""After so many looks in a row without a beat it is taken for hung."""


@dataclass
class Child:
    """A front, agent or zygote; the zygote blocks by design and is watched by the agent."""

    kind: str
    pid: int
    channel: Channel
    began: float = field(default_factory=time.monotonic)
    beats: bool = False
    """Whether it ever beat: a start may take its time."""
    silent_looks: int = 0

    def beat(self) -> None:
        self.beats = True
        self.silent_looks = 0

    def hangs(self) -> bool:
        """Look once; the looker's own sleep is not held against it."""
        self.silent_looks += 1
        return self.beats and self.silent_looks > SILENT_LOOKS_MAX

    def kill(self) -> None:
        kill(self.pid)


def kill(pid: int) -> None:
    """End a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
