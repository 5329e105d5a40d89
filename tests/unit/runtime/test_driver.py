"""The driver's side of the machine contract, with scripted machines and a clock of the test."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tercet.base.errors import must
from tercet.base.ids import Address, Epoch, ExecutorId, TaskId
from tercet.jobs.job import TaskOutput
from tercet.messages.effects import Effect, Emit, Fact, Kill, Send, Wake
from tercet.messages.events import PeerGone, PeerJoined, Received, Woke
from tercet.messages.wire import CancelTask
from tercet.runtime.driver import Common, Host, Ports, Process
from tercet.runtime.recording import Recorder, Recording
from tercet.runtime.supervise import EXIT_PROGRAMMER_ERROR

A, B = Address("front/0"), Address("cluster")


class Scripted:
    """Answers with whatever the test's function says, and remembers."""

    def __init__(self, answer: Callable[[Common], list[Effect]]) -> None:
        self.answer = answer
        self.events: list[Common] = []
        self.depth = 0

    def on(self, event: Common, now: int) -> list[Effect]:
        assert self.depth == 0, "entered twice at once"
        self.depth += 1
        self.events.append(event)
        effects = self.answer(event)
        self.depth -= 1
        return effects

    def check(self) -> None: ...


def host(
    process: Process, address: Address, machine: Scripted, ports: Ports | None = None
) -> Host[Common]:
    made: Host[Common] = Host(process, address, machine, epoch=Epoch(1), ports=ports or Ports())
    process.hosts[address] = made
    return made


def cancel(number: int) -> CancelTask:
    return CancelTask(task=TaskId(number))


def test_effects_are_carried_out_in_their_order() -> None:
    done: list[str] = []
    effects: list[Effect] = [
        Fact(name="first"),
        Emit(output=TaskOutput(task=TaskId(1))),
        Kill(executor=ExecutorId(2), reason="r"),
        Fact(name="last"),
    ]
    ports = Ports(
        fact=lambda fact: done.append(fact.name),
        emit=lambda _: done.append("emit"),
        kill=lambda _: done.append("kill"),
    )

    async def scene() -> None:
        host(Process(), A, Scripted(lambda _: effects), ports).deliver(Woke(key="x"))

    asyncio.run(scene())
    assert done == ["first", "emit", "kill", "last"]


def test_machines_of_one_process_hear_each_other_after_the_turn() -> None:
    async def scene() -> None:
        process = Process()

        def answer(event: Common) -> list[Effect]:
            if isinstance(event, Woke):
                return [Send(to=B, message=cancel(1)), Send(to=A, message=cancel(2))]
            return []

        one, other = Scripted(answer), Scripted(lambda _: [Send(to=A, message=cancel(3))])
        host(process, B, other)
        host(process, A, one).deliver(Woke(key="go"))
        assert [event.message for event in other.events if isinstance(event, Received)] == [
            cancel(1)
        ]
        heard = [e.message for e in one.events if isinstance(e, Received)]
        assert heard == [cancel(2), cancel(3)]

    asyncio.run(scene())


def test_machines_of_one_process_are_introduced() -> None:
    async def scene() -> None:
        process = Process()
        one, other = Scripted(lambda _: []), Scripted(lambda _: [])
        host(process, A, one)
        host(process, B, other)
        process.introduce()
        assert one.events == [PeerJoined(peer=B, epoch=Epoch(1))]
        assert other.events == [PeerJoined(peer=A, epoch=Epoch(1))]

    asyncio.run(scene())


def test_a_message_to_nobody_is_dropped() -> None:
    async def scene() -> None:
        machine = Scripted(lambda _: [Send(to=Address("executor/9"), message=cancel(1))])
        host(Process(), A, machine).deliver(PeerGone(peer=B, epoch=Epoch(1)))
        assert len(machine.events) == 1

    asyncio.run(scene())


class Timers:
    """A loop's timers that the test fires; only what the driver uses."""

    class Handle(Struct):
        delay: float
        call: Callable[[], None]
        cancelled: bool = False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self) -> None:
        self.handles: list[Timers.Handle] = []

    def call_later(self, delay: float, call: Callable[..., None], *args: object) -> "Timers.Handle":
        self.handles.append(Timers.Handle(delay, lambda: call(*args)))
        return self.handles[-1]

    def fire(self) -> None:
        handle = self.handles.pop()
        assert not handle.cancelled
        handle.call()


def test_a_timer_that_comes_early_waits_on() -> None:
    """A loop counts milliseconds and may be early; a machine that sees `now < at` would have
    forgotten its deadline.
    """

    async def scene() -> None:
        clock = [0]
        process = Process(clock=lambda: clock[0])
        machine = Scripted(lambda event: [])
        made, timers = host(process, A, machine), Timers()
        made._loop = timers  # type: ignore[assignment]
        made._wake(Wake(at=1_500_000, key="k"), 0)
        assert timers.handles[0].delay == pytest.approx(0.002)
        clock[0] = 1_499_999
        timers.fire()
        assert machine.events == []
        clock[0] = 1_500_000
        timers.fire()
        assert machine.events == [Woke(key="k")]

    asyncio.run(scene())


def test_a_later_wake_replaces_the_same_key_only() -> None:
    async def scene() -> None:
        made, timers = host(Process(), A, Scripted(lambda _: [])), Timers()
        made._loop = timers  # type: ignore[assignment]
        for key in ("k", "other", "k"):
            made._wake(Wake(at=10**18, key=key), 0)
        assert [handle.cancelled for handle in timers.handles] == [True, False, False]
        made.close()
        assert all(handle.cancelled for handle in timers.handles)

    asyncio.run(scene())


def test_what_broke_a_machine_is_the_last_event_of_its_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.recording"
    if os.fork() == 0:
        asyncio.run(break_down(path))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == EXIT_PROGRAMMER_ERROR
    entries = list(Recording(path).entries())
    assert [event for _, event, _ in entries] == [Woke(key="fine"), Woke(key="odd")]
    assert [len(digest) for _, _, digest in entries] == [16, 0]


async def break_down(path: Path) -> None:
    def answer(event: Common) -> list[Effect]:
        must(event == Woke(key="fine"), "odd")
        return []

    recorder = Recorder(path, b"")
    made: Host[Common] = Host(
        Process(), A, Scripted(answer), epoch=Epoch(1), ports=Ports(), recorder=recorder
    )
    made.deliver(Woke(key="fine"))
    made.deliver(Woke(key="odd"))
