"""What the checkers are for: a machine that is broken on purpose is caught, with seed and story."""

from typing import Any

import pytest
from msgspec.structs import replace

from tercet.messages.effects import Effect, Emit, RunStep, Send, Wake
from tercet.messages.wire import TaskUpdates
from tercet.sim.node import AnyMachine, Node
from tercet.sim.run import Broken, Run
from tercet.sim.scenario import ClusterSpec, FaultSpec, Scenario, WorkloadSpec
from tercet.task_executor.machine import TaskExecutor

SCENARIO = Scenario(
    name="breakage",
    cluster=ClusterSpec(replicas=1, blocks=40, slots=8, base_us=30_000),
    workload=WorkloadSpec(jobs=60, rate=40.0, prompt_max=60, cancel_share=0, several_share=0),
    quiet_after_s=30.0,
)


class Tampered:
    """A machine whose effects are tampered with; everything else is the machine's own."""

    def __init__(self, machine: AnyMachine, tamper: Any) -> None:
        self._machine = machine
        self._tamper = tamper

    def on(self, event: Any, now: int) -> list[Effect]:
        return self._tamper(self._machine.on(event, now))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


def broken_by(tamper: Any, *, address: str, scenario: Scenario = SCENARIO) -> str:
    """The sentence and story of a run in which the machines at an address are tampered with."""
    run = Run(scenario, seed=3)
    done: list[bool] = []

    def look(node: Node, *_: object) -> None:
        if node.address.startswith(address) and not isinstance(node.machine, Tampered):
            done.append(True)
            node.machine = Tampered(node.machine, tamper)

    run.world.after_turn.append(look)
    with pytest.raises(Broken) as caught:
        run.go()
    assert done
    story = str(caught.value)
    assert "seed 3" in story
    assert "the story of job" in story
    return story


def test_the_untampered_run_is_sound() -> None:
    report = Run(SCENARIO, seed=3).go()
    assert report.outcome.finished == 60


def test_freeing_a_held_block_is_caught() -> None:
    run = Run(SCENARIO, seed=3)
    freed: list[int] = []

    def free_one(node: Node, *_: object) -> None:
        machine = node.machine
        if freed or not isinstance(machine, TaskExecutor):
            return
        for task in machine.scheduler.runs.values():
            if task.holding is not None and len(task.holding.table) > task.holding.num_canonical:
                freed.append(task.holding.table[-1])
                machine.cache.pool.drop(task.holding.table[-1])
                return

    run.world.after_turn.append(free_one)
    with pytest.raises(Broken, match="block"):
        run.go()
    assert freed


def test_dropping_a_terminal_event_is_caught() -> None:
    def tamper(effects: list[Effect]) -> list[Effect]:
        return [e for e in effects if not (isinstance(e, Emit) and e.output.finish is not None)]

    assert "never ended" in broken_by(tamper, address="front/0")


def test_doubling_a_terminal_event_is_caught() -> None:
    def tamper(effects: list[Effect]) -> list[Effect]:
        ends = [e for e in effects if isinstance(e, Emit) and e.output.finish is not None]
        return [*effects, *ends]

    assert "goes on after its end" in broken_by(tamper, address="front/0")


def test_forgetting_a_wake_is_caught() -> None:
    """Executors die as they start; only a wake makes the manager start another after a while."""
    deaths = tuple(FaultSpec(kind="kill_executor", at_ms=at) for at in (50, 600))
    dies_young = replace(SCENARIO, faults=deaths)
    assert Run(dies_young, seed=3).go().outcome.finished == 60

    def tamper(effects: list[Effect]) -> list[Effect]:
        return [effect for effect in effects if not isinstance(effect, Wake)]

    assert "never ended" in broken_by(tamper, address="cluster", scenario=dies_young)


def test_a_wrong_token_is_caught() -> None:
    def tamper(effects: list[Effect]) -> list[Effect]:
        return [_with_wrong_token(effect) for effect in effects]

    assert "undisturbed it is" in broken_by(tamper, address="executor/")


def test_a_block_given_twice_is_caught() -> None:
    def tamper(effects: list[Effect]) -> list[Effect]:
        return [_with_block_zero(effect) for effect in effects]

    assert "others use it" in broken_by(tamper, address="executor/")


def _with_wrong_token(effect: Effect) -> Effect:
    if not (isinstance(effect, Send) and isinstance(effect.message, TaskUpdates)):
        return effect
    updates = tuple(
        replace(update, tokens=tuple(token ^ 1 for token in update.tokens))
        for update in effect.message.updates
    )
    return replace(effect, message=replace(effect.message, updates=updates))


def _with_block_zero(effect: Effect) -> Effect:
    if not isinstance(effect, RunStep):
        return effect
    opens = tuple(
        replace(opening, blocks=bytes(len(opening.blocks))) if not opening.computed else opening
        for opening in effect.plan.opens
    )
    return replace(effect, plan=replace(effect.plan, opens=opens))
