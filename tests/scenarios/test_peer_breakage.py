"""What the checkers of blocks elsewhere are for: leases, fences, checks and the layer clock, each
broken on purpose, are caught.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tercet.engine.borrowed import Borrowed
from tercet.messages.effects import Effect, Move, Send
from tercet.messages.events import Moved, MoveEnd, Received
from tercet.messages.kv import BlocksReady, ReturnBlocks
from tercet.sim.node import Node
from tercet.sim.run import Broken, Run
from tercet.sim.scenario import ClusterSpec, FaultSpec, NetworkSpec, Scenario, WorkloadSpec
from tercet.task_executor.machine import TaskExecutor

WORK = WorkloadSpec(
    jobs=150, rate=60.0, prompt_min=40, prompt_max=200, output_max=30, shared_share=0.2
)
ONE_HOST = Scenario(
    name="peers",
    cluster=ClusterSpec(replicas=0, prefill=1, decode=1, blocks=64, slots=8),
    workload=WORK,
    quiet_after_s=40.0,
)
TWO_HOSTS = Scenario(
    name="peers",
    cluster=ClusterSpec(
        replicas=0, prefill=1, decode=1, hosts=2, blocks=64, slots=8, layers=3, way="layer"
    ),
    workload=WORK,
    network=NetworkSpec(scale_out_mb=10.0),
    faults=(FaultSpec(kind="corrupt", every_ms=100),),
    quiet_after_s=40.0,
)
POOL = Scenario(
    name="pool",
    cluster=ClusterSpec(
        replicas=2, hosts=2, blocks=40, slots=8, pool_dram_mb=1.0, pool_disk_mb=2.0
    ),
    workload=replace(WORK, shared_prefix=160, shared_share=0.8, prompt_max=320),
    faults=(FaultSpec(kind="corrupt", every_ms=10),),
    quiet_after_s=40.0,
)

Hook = Callable[[Node, Any], Any]


class Tampered:
    """A machine whose events and effects are tampered with."""

    def __init__(self, machine: Any, event: Hook | None, effects: Hook | None, node: Node) -> None:
        self._machine = machine
        self._event = event
        self._effects = effects
        self._node = node

    def on(self, event: Any, now: int) -> list[Effect]:
        if self._event is not None:
            event = self._event(self._node, event)
        effects = self._machine.on(event, now)
        return effects if self._effects is None else self._effects(self._node, effects)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """To checkers it is what it plays."""
        return TaskExecutor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


def tampered(scenario: Scenario, *, event: Hook | None = None, effects: Hook | None = None) -> Run:
    """A run in which every executor's machine is tampered with."""
    run = Run(scenario, seed=5)

    def look(node: Node, *_: object) -> None:
        if type(node.machine) is TaskExecutor:
            node.machine = Tampered(node.machine, event, effects, node)  # type: ignore[assignment]

    run.world.after_turn.append(look)
    return run


def broken(run: Run) -> str:
    with pytest.raises(Broken) as caught:
        run.go()
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("scenario", [ONE_HOST, TWO_HOSTS, POOL])
def test_the_untampered_runs_are_sound(scenario: Scenario) -> None:
    report = Run(scenario, seed=5).go()
    assert report.outcome.finished > 120
    if scenario is ONE_HOST:
        assert report.blocks["foreign"] > 1000
    else:
        assert report.moves["done scale_out"] > 50
        assert report.moves["corrupt scale_out"] > 2


def forget_leases(node: Node, effects: list[Effect]) -> list[Effect]:
    """Lend, and hold nothing for it."""
    lender = node.machine.partners.lender  # type: ignore[attr-defined]
    for lending in lender._lendings.values():
        if lending.holding is not None and lending.holding.table:
            computed = 16 * lending.num_blocks
            lender._cache.release(lending.holding, lending.tokens, computed=computed)
            lending.num_blocks = 0
    return effects


def test_a_lease_that_holds_nothing_is_caught() -> None:
    """The lender gives blocks to others while they are lent."""
    assert "which is lent to" in broken(tampered(ONE_HOST, effects=forget_leases))


def test_a_broken_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lender gives blocks away, and the engine that reads them does not look."""
    monkeypatch.setattr(Borrowed, "stale", lambda *_: [])
    run = tampered(ONE_HOST, effects=forget_leases)
    run.world.after_turn.remove(run.leases.look)
    assert "wrong KV" in broken(run)


def test_a_fence_alone_is_enough() -> None:
    """The lender gives blocks away, the engine that reads them sees it: late, never wrong."""
    run = tampered(ONE_HOST, effects=forget_leases)
    run.world.after_turn.remove(run.leases.look)
    assert run.go().outcome.finished > 120


def test_a_return_before_the_end_is_caught() -> None:
    """The asker gives back what its steps still read."""

    def give_back(node: Node, effects: list[Effect]) -> list[Effect]:
        asker = node.machine.partners.asker  # type: ignore[attr-defined]
        borrowed = [one for one in asker._of_run.values() if one.memory]
        return effects + [
            Send(to=one.lender, message=ReturnBlocks(asks=(one.ask,))) for one in borrowed[:1]
        ]

    sentence = broken(tampered(ONE_HOST, effects=give_back))
    assert "whose lease has ended" in sentence or "which step" in sentence


def test_leases_that_nobody_ends_are_caught() -> None:
    """The asker says for ever that it still wants what it does not."""

    def keep(_: Node, event: Any) -> Any:
        if isinstance(event, Received) and isinstance(event.message, ReturnBlocks):
            return replace(event, message=ReturnBlocks(asks=()))
        return event

    def no_expiry(node: Node, effects: list[Effect]) -> list[Effect]:
        for lending in node.machine.partners.lender._lendings.values():  # type: ignore[attr-defined]
            lending.expires = 1 << 62
        return effects

    roomy = replace(ONE_HOST, cluster=replace(ONE_HOST.cluster, blocks=4096))
    assert "still hold something" in broken(tampered(roomy, event=keep, effects=no_expiry))


@pytest.mark.parametrize("scenario", [TWO_HOSTS, POOL])
def test_a_check_that_is_not_looked_at_is_caught(scenario: Scenario) -> None:
    """What came is not what was sent, and is used."""

    def believe(_: Node, event: Any) -> Any:
        if isinstance(event, Moved) and event.end is MoveEnd.CORRUPT:
            return replace(event, end=MoveEnd.DONE)
        return event

    assert "wrong KV" in broken(tampered(scenario, event=believe))


def test_a_move_that_does_not_wait_for_its_layer_is_caught() -> None:
    def hurry(_: Node, effects: list[Effect]) -> list[Effect]:
        return [
            replace(one, step=0, layer=0) if isinstance(one, Move) and one.step else one
            for one in effects
        ]

    calm = replace(TWO_HOSTS, faults=(), network=NetworkSpec(scale_out_mb=1000.0))
    assert "wrong KV" in broken(tampered(calm, effects=hurry))


def test_blocks_of_another_prompt_are_caught() -> None:
    """The lender mixes up what it lends."""
    last: list[bytes] = []

    def mix_up(_: Node, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for one in effects:
            if isinstance(one, Send) and isinstance(one.message, BlocksReady):
                units = one.message.units
                swapped = units[4:] + units[:4]
                lives = one.message.lives[4:] + one.message.lives[:4]
                last.append(swapped)
                out.append(replace(one, message=replace(one.message, units=swapped, lives=lives)))
            else:
                out.append(one)
        return out

    assert "wrong KV" in broken(tampered(ONE_HOST, effects=mix_up))
    assert last
