"""Samples the CPU time of one kind of process of a tree; Python imports it where the path leads.

Environment: TERCET_SAMPLED names the module (`tercet.runtime.front`), TERCET_SAMPLES the file that
the counts are written to whenever SIGUSR2 comes. A sample is the function that runs, once for every
tick of CPU time (1 to 4 ms, as the kernel has it); what C code does counts for its caller.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001


def start(file: Path) -> None:
    """Count samples from now on."""
    counts: dict[str, int] = {}

    def sample(_: int, frame: FrameType | None) -> None:
        if frame is not None:
            name = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
            counts[name] = counts.get(name, 0) + 1

    def write(_: int, __: FrameType | None) -> None:
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(counts))
        partial.rename(file)
        counts.clear()

    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR2, write)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)


if os.environ.get("TERCET_SAMPLED", "-") in sys.orig_argv:
    start(Path(os.environ["TERCET_SAMPLES"]))
