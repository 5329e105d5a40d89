"""What a process of the tree does with itself: its name, its parent, its end."""

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from setproctitle import setproctitle

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
EXIT_ORPHANED = 71


def name_process(title: str) -> None:
    """Show up under this name in the process list."""
    setproctitle(title)


def die_with_parent() -> None:
    """Be killed when the parent's thread that is our parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_if_orphaned(parent: int) -> None:
    """Die with the parent from now on, or now, if the parent is another already."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def allow_many_descriptors() -> None:
    """Use as many as the system grants: every client is one. Children inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def be_the_first_to_go() -> None:
    """Where memory runs out, the kernel shall end this process rather than its watchers."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def leave_signals_to_supervisor() -> None:
    """Ctrl-C in a terminal is for the supervisor, who tells us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def num_threads() -> int:
    """Threads that this process has now."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208  names only, before a fork


def children() -> list[int]:
    """Process ids of all children, stopped and dead ones too."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208  names only
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
            found += [int(pid) for pid in file.read().split()]
    return found


def shown_status(status: int) -> str:
    """Say how a process ended."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
