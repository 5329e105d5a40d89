"""The supervisor: starts the tree, replaces what dies, and leaves nothing behind.

Small and single-threaded: everything that may break lives elsewhere. It holds what must outlive
its processes: the listening sockets, and the descriptors of every executor (process, progress
page, arena), which a replaced agent gets back. Executors are children by adoption.
"""

import contextlib
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tercet.base.errors import Invalid
from tercet.base.ids import Address, Epoch
from tercet.observe.log import Log
from tercet.runtime.child import BEAT_S, Child, kill
from tercet.runtime.config import TreeConfig, with_counts
from tercet.runtime.control import (
    Beat,
    Begin,
    Channel,
    Drain,
    Drained,
    Failed,
    Held,
    Hold,
    Launch,
    NewZygote,
    Note,
    Reaped,
    Release,
    Serving,
    State,
    Wanted,
    ZygoteSilent,
    channel_from,
    channel_pair,
)
from tercet.runtime.holdings import Holdings
from tercet.runtime.launch import launch
from tercet.runtime.listening import Listeners
from tercet.runtime.place import Place, first_place
from tercet.runtime.process import (
    adopt_orphans,
    allow_many_descriptors,
    children,
    name_process,
    shown_status,
)
from tercet.runtime.recording import open_folder

FRONT, CLUSTER = Address("front/0"), Address("cluster")
RESTART_S_MIN, RESTART_S_MAX = 0.05, 2.0
QUICK_DEATHS_MAX = 5
"""So many deaths in a row of a process, each soon after its start, end the tree."""
QUICK_S = 5.0
FLUSH_S = 8.0
"""After the drain's deadline answers may take so long to leave."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """One tree from its start to its last trace."""

    def __init__(
        self,
        config: TreeConfig,
        *,
        on_serving: Callable[[str], None],
        on_failed: Callable[[str], None],
        link: Channel | None = None,
        place: Place = Place(),  # noqa: B008  frozen
    ) -> None:
        self._config = config
        self._place = place
        self._on_serving = on_serving
        self._on_failed = on_failed
        self._link = link
        self._log = Log("supervisor", config.observe)
        self._secret = place.secret or secrets.token_bytes(32)
        self._listeners = Listeners(config.runtime, place)
        self._children: dict[str, Child] = {}
        self._holdings = Holdings()
        self._epoch = place.first_epoch
        self._zygote_end: Channel | None = None
        """The agent's end of the channel to the zygote, kept for the agent's next self."""
        self._quick_deaths: dict[str, int] = {}
        self._restarts: list[tuple[float, str]] = []
        self._selector = selectors.DefaultSelector()
        self._look_at = 0.0
        self._serving = place.joined
        self._drain_until: float | None = None
        self._result: int | None = None

    def run(self) -> int:
        """Serve until a signal, the end of the link or a failure; give the exit code. Nothing of
        the tree is left when this returns.
        """
        name_process("tercet: supervisor")
        adopt_orphans()
        allow_many_descriptors()
        wakeup, woken = socket.socketpair()
        for end in (wakeup, woken):
            end.setblocking(False)
        former = {number: signal.signal(number, _noted) for number in (*_SIGNALS, signal.SIGCHLD)}
        former_wakeup = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._signalled(wakeup))
        if self._link is not None:
            self._selector.register(self._link.end, selectors.EVENT_READ, self._linked)
        try:
            if self._config.runtime.record is not None:
                open_folder(Path(self._config.runtime.record))
            self._listeners.open()
            for kind in ("zygote", "agent") if self._place.joined else ("zygote", "agent", "front"):
                self._start(kind)
            while self._result is None:
                self._turn()
        except Invalid as error:
            self._fail(error.sentence)
        finally:
            self._end()
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)
            wakeup.close()
            woken.close()
        return 1 if self._result is None else self._result

    # starting

    def _start(self, kind: str) -> None:
        self._epoch += 1
        parts: dict[str, int] = {}
        held: list[tuple[Held, tuple[int, ...]]] = []
        zygote_side: Channel | None = None
        if kind == "front":
            parts = self._listeners.of_front()
        elif kind == "agent":
            parts = self._listeners.of_agent()
            if self._zygote_end is not None:
                parts["zygote"] = self._zygote_end.fileno()
            held = self._holdings.notes()
        else:
            self._replace_zygote_end()
            agent_side, zygote_side = channel_pair()
            self._zygote_end = agent_side
            parts = {"agent": zygote_side.fileno()}
        pid, channel = launch(kind)
        child = Child(kind, pid, channel)
        self._children[kind] = child
        self._selector.register(channel.end, selectors.EVENT_READ, lambda: self._heard(child))
        begin = Begin(
            config=self._config,
            address=self._listeners.address(kind),
            epoch=Epoch(self._epoch),
            supervisor=os.getpid(),
            secret=self._secret,
            names=self._listeners.names,
            public=self._listeners.public,
            descriptors=tuple(parts),
            next_executor=self._holdings.next_executor,
            num_held=len(held),
        )
        self._tell(child, begin, tuple(parts.values()))
        for note, descriptors in held:
            self._tell(child, note, descriptors)
        if zygote_side is not None:
            zygote_side.close()
            self._introduce_zygote()

    def _replace_zygote_end(self) -> None:
        if self._zygote_end is not None:
            self._zygote_end.close()
            self._zygote_end = None

    def _introduce_zygote(self) -> None:
        agent = self._children.get("agent")
        if agent is not None and self._zygote_end is not None:
            self._tell(agent, NewZygote(), (self._zygote_end.fileno(),))

    def _tell(self, child: Child, note: Note, descriptors: tuple[int, ...] = ()) -> None:
        """A child that does not read has stopped: it is replaced like one that died."""
        if not child.channel.send(note, descriptors):
            child.kill()

    # one turn

    def _turn(self) -> None:
        now = time.monotonic()
        due = [kind for at, kind in self._restarts if at <= now]
        self._restarts = [(at, kind) for at, kind in self._restarts if at > now]
        for kind in due:
            self._start(kind)
        if self._drain_until is not None and now >= self._drain_until:
            self._log.line("warning", "drain.cut")
            self._result = 0
            return
        if now >= self._look_at:
            self._look_at = now + BEAT_S
            self._look()
        deadlines = [self._look_at, *(at for at, _ in self._restarts)]
        if self._drain_until is not None:
            deadlines.append(self._drain_until)
        for key, _ in self._selector.select(max(0.0, min(deadlines) - now)):
            key.data()
            if self._result is not None:
                return

    def _look(self) -> None:
        for child in self._children.values():
            if child.hangs():
                self._log.line("error", "process.hangs", name=child.kind)
                child.kill()

    def _signalled(self, wakeup: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in wakeup.recv(4096):
                if number in _SIGNALS:
                    self._asked_to_end(number)
        self._reap()

    def _asked_to_end(self, number: int) -> None:
        if self._drain_until is not None or not self._serving:
            self._result = 128 + number if self._drain_until is not None else 0
            return
        timeout = self._config.runtime.shutdown_timeout_s
        self._log.line("info", "drain", signal=signal.Signals(number).name, timeout_s=timeout)
        self._drain_until = time.monotonic() + timeout + FLUSH_S
        front = self._children.get("front")
        if front is None:
            self._result = 0
            return
        self._tell(front, Drain(deadline=time.monotonic_ns() + int(timeout * 1e9)))

    def _linked(self) -> None:
        """Whoever started the tree never writes: something to read is its end."""
        self._result = 0

    def _heard(self, child: Child) -> bool:
        """Take one note; False if there is none now."""
        if child.channel.fileno() < 0:
            return False
        try:
            received = child.channel.receive()
        except BlockingIOError:
            return False
        if received is None:
            self._selector.unregister(child.channel.end)
            child.channel.close()
            return False
        self._take(child, received[0], received[1])
        return True

    def _take(self, child: Child, note: Note, descriptors: list[int]) -> None:
        match note:
            case Beat():
                child.beat()
            case State(ready=ready):
                self._state(ready=ready)
            case Drained():
                self._result = 0
            case Wanted():
                self._config = with_counts(self._config, note.prefill, note.decode, note.colocated)
            case Failed(sentence=sentence, for_good=False) if self._serving:
                # What could be served once may be again: it is tried on.
                self._log.line("error", "tree.failed", told_by=child.kind, why=sentence)
            case Failed(sentence=sentence):
                self._fail(sentence)
            case Hold():
                self._holdings.hold(note, descriptors)
            case ZygoteSilent() if "zygote" in self._children:
                self._children["zygote"].kill()
            case Release(executor=executor):
                self._holdings.release(executor)
            case _:
                self._log.line("error", "control.unexpected", note=type(note).__name__)

    def _state(self, *, ready: bool) -> None:
        if ready and not self._serving:
            self._serving = True
            self._on_serving(self._listeners.url())
            if self._link is not None:
                self._link.send(Serving(url=self._listeners.url()))

    def _fail(self, sentence: str) -> None:
        self._result = 1
        self._on_failed(sentence)
        if self._link is not None:
            self._link.send(Failed(sentence=sentence))

    # deaths

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reaped(pid, shown_status(status))

    def _reaped(self, pid: int, how: str) -> None:
        child = next((one for one in self._children.values() if one.pid == pid), None)
        if child is None:
            agent = self._children.get("agent")
            if agent is not None:
                self._tell(agent, Reaped(pid=pid, how=how))
            return
        while self._heard(child):
            pass  # what it said before it died still counts
        del self._children[child.kind]
        if self._result is not None:
            return
        if self._drain_until is not None and child.kind == "front":
            self._result = 0
            return
        self._log.line("error", "process.died", name=child.kind, how=how)
        self._plan_restart(child, killed=how.startswith("signal"))

    def _plan_restart(self, child: Child, *, killed: bool) -> None:
        quick = time.monotonic() - child.began < QUICK_S
        deaths = self._quick_deaths.get(child.kind, 0) + 1 if quick else 0
        self._quick_deaths[child.kind] = deaths
        # Once it has served, only what ends by itself shows that starting again is of no use.
        if deaths >= QUICK_DEATHS_MAX and not (killed and self._serving):
            self._fail(f"The {child.kind} process died {deaths} times in a row; see the log.")
            return
        delay = min(RESTART_S_MIN * 2 ** max(0, deaths - 1), RESTART_S_MAX) if deaths else 0.0
        self._restarts.append((time.monotonic() + delay, child.kind))

    def _end(self) -> None:
        """Kill and reap every descendant, stopped ones too, and close all that was held."""
        for child in self._children.values():
            child.kill()
        while True:
            for pid in children():
                kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        for child in self._children.values():
            child.channel.close()
        self._holdings.close()
        self._listeners.close()
        self._replace_zygote_end()
        self._selector.close()


def _noted(number: int, _: object) -> None:
    """A handler must exist for the wake-up descriptor to be written to."""
    del number


def supervise(
    config: TreeConfig, *, on_serving: Callable[[str], None], place: Place | None = None
) -> int:
    """Be the supervisor of a tree in this process until it ends; give the exit code.

    `on_serving` is called with the address once the model can answer. `place`: the host is one that
    joined a cluster.
    """

    def tell(sentence: str) -> None:
        print(f"error: {sentence}", file=sys.stderr, flush=True)

    return Supervisor(
        config, on_serving=on_serving, on_failed=tell, place=place or first_place(config.runtime)
    ).run()


def main(descriptor: int) -> int:
    """Be the supervisor of a tree for whoever holds the other end of the channel."""
    link = channel_from(descriptor)
    received = link.receive()
    if received is None or not isinstance(received[0], Launch):
        return 1

    def ignore(_: str) -> None:
        return

    config = received[0].config
    return Supervisor(
        config, on_serving=ignore, on_failed=ignore, link=link, place=first_place(config.runtime)
    ).run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
