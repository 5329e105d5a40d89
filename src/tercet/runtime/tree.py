"""Starting a process tree as a child, for a program that uses it and ends it (`LLM`, tests)."""

import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from tercet.base.errors import Invalid
from tercet.runtime.config import TreeConfig
from tercet.runtime.control import Channel, Failed, Launch, Serving, channel_pair

CLOSE_S = 20.0
"""A supervisor that has not ended its tree by then is killed, and its tree with it."""


@dataclass
class Tree:
    """A running tree; it ends with `close`, or when this process ends, however that happens."""

    url: str
    """Where it serves HTTP."""
    process: "subprocess.Popen[bytes]"
    _link: Channel

    def terminate(self) -> None:
        """Ask it to finish what runs and to take nothing new, as SIGTERM does."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float | None = None) -> int:
        """Give the exit code of the supervisor once nothing of the tree is left."""
        code = self.process.wait(timeout_s)
        self._link.close()
        return code

    def close(self) -> None:
        """End it now; nothing of it is left when this returns."""
        self._link.close()
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            # It is stopped or starved; the tree dies with it in any case.
            self.process.kill()
            self.process.wait()


def start_tree(config: TreeConfig, *, timeout_s: float = 600.0) -> Tree:
    """Start a supervisor as a child and wait until its tree serves.

    `Invalid` tells in a sentence why it does not; nothing is left then.
    """
    ours, theirs = channel_pair()
    process = subprocess.Popen(  # noqa: S603  this interpreter, our module
        [sys.executable, "-m", "tercet.runtime.supervisor", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    theirs.close()
    tree = Tree("", process, ours)
    try:
        tree.url = _await(ours, config, timeout_s)
    except BaseException:
        tree.close()
        raise
    return tree


def _await(link: Channel, config: TreeConfig, timeout_s: float) -> str:
    link.send(Launch(config=config))
    until = time.monotonic() + timeout_s
    while (left := until - time.monotonic()) > 0:
        if not select.select([link], [], [], left)[0]:
            break
        received = link.receive()
        if received is None:
            raise Invalid("The server ended while it started; see its log.", code="failed")
        match received[0]:
            case Serving(url=url):
                return url
            case Failed(sentence=sentence, code=code):
                raise Invalid(sentence, code=code)
    raise Invalid(f"The server was not ready within {timeout_s:g} s.", code="failed")
