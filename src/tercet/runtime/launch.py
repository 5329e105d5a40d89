"""Starting one of the tree's Python processes: fork, a bond to the parent, exec."""

import gc
import os
import signal
import sys

from tercet.runtime.control import Channel, channel_pair
from tercet.runtime.process import die_with_parent

_ENVIRONMENT = {
    # Libraries read these while they load. More threads come later, where they are granted.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def launch(module: str) -> tuple[int, Channel]:
    """Run a module of this package as a child that dies with this thread; give its process id
    and our end of its channel. The child's only inherited descriptors are 0, 1, 2 and its end.
    """
    ours, theirs = channel_pair()
    arguments = [sys.executable, "-m", f"tercet.runtime.{module}", str(theirs.fileno())]
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _become(arguments, theirs)
    gc.unfreeze()
    theirs.close()
    ours.end.setblocking(False)
    return pid, ours


def _become(arguments: list[str], theirs: Channel) -> None:
    """Turn this freshly forked process into the module's; never returns."""
    try:
        die_with_parent()
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.set_inheritable(theirs.fileno(), True)
        for name, value in _ENVIRONMENT.items():
            os.putenv(name, value)
        os.execv(arguments[0], arguments)  # noqa: S606  this interpreter, our module
    finally:
        os._exit(127)
