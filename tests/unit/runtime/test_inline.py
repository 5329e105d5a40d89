"""The driver without a loop: order of effects, timers, peers, and what an interruption leaves."""

from collections.abc import Callable

import pytest

from tercet.base.errors import InvariantBroken
from tercet.base.ids import Address, ExecutorId
from tercet.jobs.job import TaskOutput
from tercet.messages.effects import Effect, Emit, Fact, Kill, RunStep, Send, Wake
from tercet.messages.events import Event, PeerJoined, Received, StepDone, Woke
from tercet.messages.plan import StepPlan, StepResult
from tercet.messages.wire import CancelTask
from tercet.runtime.inline import EPOCH, Inline

A, B = Address("front/0"), Address("executor/0")
TASK = CancelTask(task=1)  # type: ignore[arg-type]


class Scripted:
    """Notes its events and answers each by what `answer` gives."""

    def __init__(self, answer: Callable[[Event], list[Effect]] = lambda _: []) -> None:
        self.events: list[Event] = []
        self._answer = answer

    def on(self, event: Event, now: int) -> list[Effect]:
        del now
        self.events.append(event)
        return self._answer(event)

    def check(self) -> None:
        """Always sound."""


class Bench:
    """A driver with a clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.steps: list[int] = []
        self.pieces: list[TaskOutput] = []
        self.error: BaseException | None = None
        self.driver = Inline(self.run, engine_of=B, emit=self.pieces.append, clock=lambda: self.now)
        monkeypatch.setattr("tercet.runtime.inline.time.sleep", self.sleep)

    def run(self, plan: StepPlan) -> StepResult:
        self.steps.append(plan.step)
        if self.error is not None:
            raise self.error
        return StepResult(step=plan.step)

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def steps(*numbers: int) -> list[Effect]:
    return [RunStep(plan=StepPlan(step=number), predicted_ns=1) for number in numbers]


def test_machines_learn_of_each_other(bench: Bench) -> None:
    a, b = Scripted(), Scripted()
    bench.driver.add(A, a)
    bench.driver.add(B, b)
    assert a.events == [PeerJoined(peer=B, epoch=EPOCH)]
    assert b.events == [PeerJoined(peer=A, epoch=EPOCH)]


def test_messages_reach_machines_of_this_process_and_nobody_else(bench: Bench) -> None:
    def answer(event: Event) -> list[Effect]:
        here = [Send(to=B, message=TASK), Send(to=Address("cluster"), message=TASK)]
        return list(here) if isinstance(event, Woke) else []

    a, b = Scripted(answer), Scripted()
    bench.driver.add(A, a)
    bench.driver.add(B, b)
    bench.driver.deliver(A, Woke(key="x"))
    assert b.events[1:] == [Received(sender=A, epoch=EPOCH, message=TASK)]


def test_steps_run_one_a_turn_in_order_and_each_is_answered(bench: Bench) -> None:
    b = Scripted(lambda event: steps(1, 2, 3) if isinstance(event, Woke) else [])
    bench.driver.add(B, b)
    bench.driver.deliver(B, Woke(key="x"))
    assert bench.steps == []
    for number in (1, 2, 3):
        assert bench.driver.turn()
        assert bench.steps == list(range(1, number + 1))
        assert b.events[-1] == StepDone(result=StepResult(step=number))
    assert not bench.driver.turn()


def test_pieces_come_out_in_order(bench: Bench) -> None:
    pieces = [TaskOutput(task=1, tokens=(number,)) for number in range(3)]  # type: ignore[arg-type]
    bench.driver.add(A, Scripted(lambda _: [Emit(output=piece) for piece in pieces]))
    bench.driver.deliver(A, Woke(key="x"))
    assert bench.pieces == pieces


def test_timers_come_when_due_and_later_ones_replace_earlier(bench: Bench) -> None:
    wakes = iter([[Wake(at=100, key="k"), Wake(at=700, key="k"), Wake(at=300, key="j")]])
    a = Scripted(lambda _: list(next(wakes, [])))
    bench.driver.add(A, a)
    bench.driver.deliver(A, Woke(key="begin"))
    woken = []
    while bench.driver.turn():
        woken.append((bench.now, [event.key for event in a.events[1:]]))  # type: ignore[union-attr]
    assert bench.now == 700
    assert [event.key for event in a.events] == ["begin", "j", "k"]  # type: ignore[union-attr]


def test_facts_are_nobodys_business_and_processes_are_not_started(bench: Bench) -> None:
    bench.driver.add(A, Scripted(lambda _: [Fact(name="a.b")]))
    bench.driver.deliver(A, Woke(key="x"))
    assert not bench.driver.broken
    with pytest.raises(InvariantBroken, match="no Kill"):
        bench.driver.add(B, Scripted(lambda _: [Kill(executor=ExecutorId(1), reason="")]))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a device broke")])
def test_an_interrupted_step_ends_it_for_good(bench: Bench, error: BaseException) -> None:
    b = Scripted(lambda event: steps(1, 2) if isinstance(event, Woke) else [])
    bench.driver.add(B, b)
    bench.driver.deliver(B, Woke(key="x"))
    bench.error = error
    with pytest.raises(type(error)):
        bench.driver.turn()
    bench.driver.deliver(B, Woke(key="y"))
    assert not bench.driver.turn()
    assert bench.driver.broken
    assert b.events == [Woke(key="x")]
    assert bench.steps == [1]


def test_a_machine_that_contradicts_itself_ends_it_for_good(bench: Bench) -> None:
    def answer(_: Event) -> list[Effect]:
        raise ValueError("broken")

    bench.driver.add(A, Scripted(answer))
    with pytest.raises(ValueError, match="broken"):
        bench.driver.deliver(A, Woke(key="x"))
    bench.driver.deliver(A, Woke(key="y"))
    assert not bench.driver.turn()
