"""By reference where it can be, else by what moves from that very peer took."""

import pytest
from executor_harness import task
from peer_world import World

from tercet.messages.events import Moved, MoveEnd
from tercet.messages.kv import Way
from tercet.messages.plan import StepCost
from tercet.messages.wire import Role
from tercet.scheduling.run import TaskRun
from tercet.task_executor.ways import Ways
from tercet.transfer.config import TransferConfig

P, D = "executor/1", "executor/2"
MS = 1_000_000


def moved(size: int, duration_ns: int) -> Moved:
    return Moved(ticket=1, end=MoveEnd.DONE, size=size, duration_ns=duration_ns, wire="tcp")


def chosen(
    *, latency_ms: float, per_byte_ns: float, row_ms: float, way: str = "auto", local: bool = False
) -> Way:
    """For 6 blocks of 64 bytes in two layers, after one fetch by layer and one by request."""
    house = World({1: Role.PREFILL, 2: Role.DECODE}, local=local)
    machine = house.peers[D].machine
    machine.scheduler.pace.learn(predicted_ns=1.0, taken_ns=1.0)
    machine.scheduler.pace.cost = StepCost(
        base_ns=0.0, per_row_ns=row_ms * MS, per_logit_ns=0.0, per_pair_ns=0.0
    )
    ways = Ways(TransferConfig(way=way), machine.scheduler, machine.partners.neighbours)
    for size in (64, 6400):
        ways.learn(P, moved(size, int(latency_ms * MS + size * per_byte_ns)))
    message = house_task(house)
    return ways.to(P, house.peers[P].reach, message)


def house_task(house: World) -> TaskRun:
    house.submit(task(1, [1, 2] * 50, new=4), D)
    return next(iter(house.peers[D].machine.scheduler.runs.values()))


@pytest.mark.parametrize(
    ("latency_ms", "per_byte_ns", "row_ms", "way"),
    [
        (0.1, 1000.0, 1.0, Way.LAYER),  # a fast link behind a long prefill
        (0.1, 1e6, 1.0, Way.LAYER),  # a slow one: the prefill hides a part
        (50.0, 10.0, 0.01, Way.REQUEST),  # far away: two latencies, and nothing to hide them
        (50.0, 10.0, 2.0, Way.LAYER),  # far away, but there is time
    ],
)
def test_the_way_with_the_least_left_behind_the_prefill(
    latency_ms: float, per_byte_ns: float, row_ms: float, way: Way
) -> None:
    assert chosen(latency_ms=latency_ms, per_byte_ns=per_byte_ns, row_ms=row_ms) is way


def test_in_place_where_it_can_be_and_as_told() -> None:
    far = {"latency_ms": 50.0, "per_byte_ns": 10.0, "row_ms": 0.01}
    assert chosen(**far, local=True) is Way.REFERENCE
    assert chosen(**far, way="layer") is Way.LAYER
    assert chosen(**far, way="reference") is Way.REQUEST


def test_a_pair_learns_from_its_own_fetches() -> None:
    """The first comes by layer; here every move takes as long and the prefill nothing: then by
    request.
    """
    house = World({1: Role.PREFILL, 2: Role.DECODE}, local=False)
    for number, letters in enumerate(([1, 2], [3, 4], [5, 6]), 1):
        house.submit(task(number, letters * 40, new=4), D, prefill=P)
        house.settle()
        house.verify(number)
    ways = [dict(fact.labels)["way"] for fact in house.facts_of("kv.handover")]
    assert ways == ["layer", "request", "request"]
    (learned,) = house.peers[D].machine.partners.asker.ways.standing()
    assert (learned.source, learned.fetches) == (f"peer:{P}", 3)
